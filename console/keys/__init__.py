"""API keys of consumers: made, shown once, limited, revoked."""
