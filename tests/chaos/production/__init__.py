"""Faults over a production stack that runs already, known by its ``up.json``: ``python -m tests.chaos production``."""
