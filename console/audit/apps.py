"""Django app ``audit``."""

from django.apps import AppConfig


class AuditConfig(AppConfig):
    """Registers the app under the label ``audit``."""

    name = "console.audit"
    label = "audit"
