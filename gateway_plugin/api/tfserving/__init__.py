"""TensorFlow Serving's REST API and gRPC services: paths and methods, what answers show, metrics. Bodies: ``codec``."""
