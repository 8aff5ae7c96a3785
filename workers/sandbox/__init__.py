"""What a runner may not do, layer by layer, and how each layer is tried."""
