"""What we measure and how, runnable by anyone: ``python -m benchmarks --help``."""
