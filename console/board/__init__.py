"""Computes in memory what the board shows: rows, topics, lanes, queues, alarms. No clock, no I/O, no Django."""
