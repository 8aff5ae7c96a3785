"""Notices what lies in repositories: the controller lists them, and registers and withdraws what they bring."""
