"""One connection to a NATS server: socket, encryption, protocol frames, reconnecting. Nothing here knows JetStream."""
