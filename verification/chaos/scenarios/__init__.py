"""What a run does: a storm of faults, or one fault again and again."""
