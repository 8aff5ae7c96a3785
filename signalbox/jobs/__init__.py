"""The life of a job, for every program: its records and their meaning, its log lines, and what people do with it."""
