"""What every request passes, of pages and of the REST API: its identity, its bounds, and how a refusal looks."""
