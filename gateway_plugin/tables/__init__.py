"""What the gateway knows of models and workers, kept in memory and fed by NATS."""
