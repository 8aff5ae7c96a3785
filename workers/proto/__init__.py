"""Stubs of what is read of configurations of Triton and TensorFlow Serving. ``make proto`` writes them."""
