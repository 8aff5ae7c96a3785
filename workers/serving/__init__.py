"""Serving one hold of the GPU: what is pulled, what the runner does with it, what ends."""
