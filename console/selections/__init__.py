"""Acts on many jobs: which ones is written down first, then they are acted on one after the other."""
