"""Does batches of files: each line a job of its account, each end a line of a file (docs/batches.md)."""
