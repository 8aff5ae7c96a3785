"""Acts on operators, their tokens and the read-only switch, and how passwords are checked."""
