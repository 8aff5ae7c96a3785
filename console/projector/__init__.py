"""Writes records of STATE and acceptances of jobs as rows. Idempotent by revision."""
