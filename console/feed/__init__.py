"""What this process hears of the fleet: one connection to NATS keeps the board's rows current. No Django."""
