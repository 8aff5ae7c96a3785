"""Django app ``jobs``."""

from django.apps import AppConfig


class JobsConfig(AppConfig):
    """Registers the app under the label ``jobs``."""

    name = "console.jobs"
    label = "jobs"
