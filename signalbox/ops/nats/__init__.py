"""Commands of an admin on NATS: topology, backup, restore, users, dead letters."""
