"""Models, their immutable versions, labels, limits: the source of truth of what may serve."""
