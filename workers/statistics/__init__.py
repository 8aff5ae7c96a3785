"""What a worker has measured, for all its holds: times, rates, sizes, batch limits, stored bytes. Bounded."""
