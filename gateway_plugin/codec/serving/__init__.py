"""TensorFlow Serving's own JSON: examples, results, and what it says of a request that it does not take."""
