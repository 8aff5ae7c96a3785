"""Takes items of queues to their services: each a job of its model, its result in the sink (docs/services.md)."""
