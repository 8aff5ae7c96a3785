"""Bodies to tensors and back: formats, prepared signatures, and the processes for large bodies."""
