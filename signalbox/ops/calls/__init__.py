"""Commands of callers on a front: predict, submit, jobs, events, result."""
