"""Bodies to tensors and back: whose turn it is."""
