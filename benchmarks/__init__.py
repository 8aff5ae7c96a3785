"""Benchmarks of Signalbox: ``python -m benchmarks --help``."""
