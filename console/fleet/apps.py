"""Django app ``fleet``."""

from django.apps import AppConfig


class FleetConfig(AppConfig):
    """Registers the app under the label ``fleet``."""

    name = "console.fleet"
    label = "fleet"
