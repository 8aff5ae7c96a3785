"""Queues under faults: real gateways and NATS, callers over HTTP and websockets, and laws over what those saw."""
