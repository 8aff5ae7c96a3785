"""Decisions on their way to NATS, stored in the transaction that made them."""
