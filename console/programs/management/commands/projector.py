"""``python -m console projector``."""

import gc
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand

from console.outbox.program import run_program
from console.projector.reader import Projector

_GARBAGE_AFTER: Final = 20_000
"""Objects, instead of 700: a batch makes tens of thousands, none of them garbage; looking took a sixth of the time."""


class Command(BaseCommand):
    help = "Turn events into the rows that Jobs pages search. Goes on from where the tables end."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        console = settings.CONSOLE
        gc.freeze()
        gc.set_threshold(_GARBAGE_AFTER)
        run_program(console, "projector", lambda bus: [Projector(bus, console.projector_batch).run()])
