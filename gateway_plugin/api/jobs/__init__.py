"""The job API: submit, read and cancel jobs (docs/api.md)."""
