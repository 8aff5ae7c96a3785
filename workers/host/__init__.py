"""What a worker is and publishes: identity, presence, metrics, the models it should serve."""
