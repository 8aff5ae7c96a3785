"""The Open Inference Protocol: requests to the inputs of a version, and outputs to answers."""
