"""The console's programs."""
