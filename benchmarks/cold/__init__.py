"""What a model costs that is not here yet."""
