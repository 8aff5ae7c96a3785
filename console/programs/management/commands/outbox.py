"""``python -m console outbox``."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from console.outbox.program import run_program
from console.outbox.publisher import Publisher


class Command(BaseCommand):
    help = "Publish the outbox alone (the controller does it too; several may run)."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        run_program(settings.CONSOLE, "outbox", lambda bus: [Publisher(bus).run()])
