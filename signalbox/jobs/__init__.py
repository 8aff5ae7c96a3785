"""The life of a job, for every program: what is told of it."""
