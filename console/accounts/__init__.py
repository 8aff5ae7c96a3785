"""Operators, their roles, their tokens, and the one function that says who may do what."""
