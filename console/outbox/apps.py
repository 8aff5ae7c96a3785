"""Django app ``outbox``."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """Registers the app under the label ``outbox``."""

    name = "console.outbox"
    label = "outbox"
