"""A day in an hour: whether a production stack stays level."""
