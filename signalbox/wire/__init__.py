"""What travels between programs: names, messages, streams and rights, tensors, placement. Pure data, no I/O."""
