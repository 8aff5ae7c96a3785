"""``python -m console COMMAND``: the console's programs, as Django's management commands."""
