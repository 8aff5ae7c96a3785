"""Django app ``api``."""

from django.apps import AppConfig


class ApiConfig(AppConfig):
    """Registers the app and the schema extension."""

    name = "console.api"
    label = "api"

    def ready(self) -> None:
        """Extensions register themselves when imported."""
        from console.api import schema  # noqa: F401
