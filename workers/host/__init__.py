"""What a worker is and tells of itself: identity, presence, metrics, the models it should serve."""
