"""Desired state of workers and queues (drain, pause), and which workers there are."""
