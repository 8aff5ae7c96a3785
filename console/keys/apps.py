"""Django app ``keys``."""

from django.apps import AppConfig


class KeysConfig(AppConfig):
    """Registers the app under the label ``keys``."""

    name = "console.keys"
    label = "keys"
