"""Faults, and the catalogue that a storm chooses from."""
