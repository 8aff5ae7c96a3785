"""``python -m console projector``."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from console.outbox.program import run_program
from console.projector.reader import Projector


class Command(BaseCommand):
    help = "Turn events into the rows that Jobs pages search. Goes on from where the tables end."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        console = settings.CONSOLE
        run_program(
            console, "projector", lambda bus: [Projector(bus, console.projector_batch).run()]
        )
