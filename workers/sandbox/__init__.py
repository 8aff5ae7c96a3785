"""The sandbox of a runner: its layers, and how each layer is tried out."""
