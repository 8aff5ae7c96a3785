"""What the gateway knows of the fleet, kept in memory and fed by NATS."""
