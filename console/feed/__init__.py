"""One connection to NATS that keeps the board's rows of this process current. No Django."""
