"""What the gateway calls for each request."""
