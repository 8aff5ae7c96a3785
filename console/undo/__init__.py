"""Taking acts back: pausing, draining, labels, defaults, policies, settings, pins, and what an operator may do."""
