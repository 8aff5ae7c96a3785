"""The hooks that the gateway calls for each request, and the servers that take the calls."""
