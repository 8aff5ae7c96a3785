"""Django app ``catalog``."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """Registers the app under the label ``catalog``."""

    name = "console.catalog"
    label = "catalog"
