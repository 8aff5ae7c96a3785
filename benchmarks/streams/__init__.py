"""Measures streams of jobs' events."""
