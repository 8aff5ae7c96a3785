"""Try it: an operator calls a model through the front, as a consumer does, with a key that lives for minutes."""
