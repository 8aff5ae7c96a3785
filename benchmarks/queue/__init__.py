"""What the queue costs: models that nobody calls, jobs that wait, devices that share a model."""
