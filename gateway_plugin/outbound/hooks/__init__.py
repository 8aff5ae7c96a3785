"""Webhooks: ends of jobs told over HTTP, at least once, signed as Standard Webhooks has it."""
