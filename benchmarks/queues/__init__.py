"""What queues cost: puts, and watches with commits, beside a front that only publishes and acknowledges."""
