"""Serves what a hook cannot return: binary bodies and gRPC."""
