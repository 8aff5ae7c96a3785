"""NATS and JetStream: one connection, compare-and-set writes, pulls, tables, and the topology they need."""
