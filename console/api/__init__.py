"""REST API of the console: the same services the pages call, with a token per operator."""
