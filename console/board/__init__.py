"""What the board shows, computed in memory: rows, topics, lanes, queues, alarms. No clock, no I/O, no Django."""
