"""Django app ``live``. No tables: everything it shows is in NATS."""

from django.apps import AppConfig


class LiveConfig(AppConfig):
    """Registers the app."""

    name = "console.live"

    def ready(self) -> None:
        """Has connections looked at again when their operator's login or rights change."""
        from console.accounts.sessions import doubted
        from console.live.attendance import attendance

        doubted.connect(attendance.doubt, dispatch_uid="live.doubted")
