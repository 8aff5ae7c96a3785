"""Faults over a production stack that runs, known by its ``up.json``: ``python -m verification.chaos production``."""
