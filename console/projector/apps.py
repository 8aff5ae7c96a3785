"""Django app ``projector``."""

from django.apps import AppConfig


class ProjectorConfig(AppConfig):
    """Registers the app under the label ``projector``."""

    name = "console.projector"
    label = "projector"
