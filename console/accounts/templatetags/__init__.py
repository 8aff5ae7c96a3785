"""Formats used on every page."""
