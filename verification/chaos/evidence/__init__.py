"""What a run writes down, and reads back to be judged."""
