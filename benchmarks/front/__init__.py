"""What the path of a job through a front costs: the edge, a real Tyk, a Tyk with a plugin that only answers."""
