"""The life of a job, for every program: what its records mean, what is told of it, what people do with it."""
