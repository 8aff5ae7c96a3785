"""The program that sends results out: ends on NATS, webhooks, batches of files. Never on a job's path.

Any number of copies may run: each task is done by the one that holds its lease in ``duties``.
"""
