"""What a production stack of three nodes costs: calls, hand-overs and take-overs, what jobs store."""
