"""Splits: part of the requests of a default or a label get a candidate, until that is promoted or rolled back."""
