"""Django app ``accounts``."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AccountsConfig(AppConfig):
    """Registers the app, and after each migration updates the four role groups from the code."""

    name = "console.accounts"

    def ready(self) -> None:
        """Listens for the end of migrations and for logins."""
        from django.contrib.auth.signals import user_logged_in

        from console.accounts import sessions
        from console.accounts.roles import sync_groups

        user_logged_in.connect(sessions.begin, dispatch_uid="accounts.session_begins")
        post_migrate.connect(sync_groups, sender=self, dispatch_uid="accounts.sync_groups")
