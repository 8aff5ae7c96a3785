"""Models, their immutable versions, labels and limits: the source of truth for what is served."""
