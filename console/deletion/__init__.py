"""Deletes versions, models and repositories, and takes that back while it can be."""
