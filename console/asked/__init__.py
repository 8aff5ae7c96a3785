"""What owners of API keys may have the console do, as gateways ask for them."""
