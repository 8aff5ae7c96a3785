"""The life of a job, for every program: what its records mean and what is told of it."""
