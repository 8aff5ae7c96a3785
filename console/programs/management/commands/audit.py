"""``python -m console audit``: whether the audit is as it was written."""

import asyncio
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.audit import marks
from console.audit.models import AuditHead, breaks
from signalbox.bus.client import Bus
from signalbox.program.errors import SignalboxError
from signalbox.program.words import counted
from signalbox.wire.messages import AuditMark


class Command(BaseCommand):
    help = (
        "Check the chain of the audit, and that every head noted in NATS is a row of it; print its end:"
        " written down elsewhere, it shows a chain made anew."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--database-only",
            action="store_true",
            help="without NATS: a log that was cut at its end and given a new head is not found",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        found = list(breaks())
        compared = ""
        if not options["database_only"]:
            noted = self._noted(found)
            found += marks.unmatched(noted)
            compared = f"; {counted(len(noted), 'head noted in NATS matches', 'heads noted in NATS match')}"
        if found:
            raise CommandError("The audit is not as it was written: " + "; ".join(found[:20]))
        head = AuditHead.objects.filter(pk=1).first()
        if head is None:
            self.stdout.write("whole; nothing is in it yet")
        else:
            self.stdout.write(f"whole; it ends at {head}{compared}")

    def _noted(self, found: list[str]) -> list[AuditMark]:
        """Every note. Raises :class:`CommandError` where NATS does not tell, with the breaks that are known."""
        try:
            return asyncio.run(_read())
        except SignalboxError as error:
            known = "; ".join(found[:20]) or "The chain in the database is whole"
            raise CommandError(
                f"{known}. Whether its end was cut is not known, as the heads noted in NATS cannot be read:"
                f" {error.public_message} Without them: --database-only."
            ) from error


async def _read() -> list[AuditMark]:
    async with await Bus.connect(settings.CONSOLE, role="console", name="audit") as bus:
        return await marks.read(bus)
