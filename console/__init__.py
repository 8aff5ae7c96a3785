"""The operators' console: a Django project that decides, shows and writes down. Never on a job's path."""
