"""How many devices each model has, and how many workers there are, by what waits. Pure but for its keeper."""
