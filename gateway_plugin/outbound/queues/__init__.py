"""What the outbound program does for queues: it makes their streams, says how they stand, and acts for operators."""
