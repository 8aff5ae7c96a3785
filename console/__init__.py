"""The operators' console: a Django project that records decisions, shows state and keeps the audit; not on a job's
path.
"""
