"""Bodies to tensors and back, in turn: formats, signatures made ready, and the processes for large bodies."""
