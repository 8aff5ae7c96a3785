"""Middleware of pages and REST API: the request's identity, its bounds, and the form of a refusal."""
