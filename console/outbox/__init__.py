"""The outbox: decisions to publish to NATS, stored in the transaction that made them."""
