"""TensorFlow Serving's REST API: its paths, what its answers show, and its metrics. Its bodies: ``codec``."""
