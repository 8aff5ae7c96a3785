"""Who did what, when, from where and why. Append-only, written with the change itself."""
