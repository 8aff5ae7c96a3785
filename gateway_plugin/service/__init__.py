"""The door to jobs that all dialects share, and what it needs: waiting, describing, availability."""
