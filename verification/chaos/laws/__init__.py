"""What a history must obey, as pure functions over it."""
