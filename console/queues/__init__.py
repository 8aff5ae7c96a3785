"""Queues of the queue service, as operators make, change and empty them."""
