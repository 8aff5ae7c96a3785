"""Django app ``programs``. No tables: Django finds management commands in apps only."""

from django.apps import AppConfig


class ProgramsConfig(AppConfig):
    """Registers the app."""

    name = "console.programs"
    label = "programs"
