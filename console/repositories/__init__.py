"""Places that models come from."""
