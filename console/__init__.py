"""The operators' console, a Django project: decisions, display and audit. Never on a job's path."""
