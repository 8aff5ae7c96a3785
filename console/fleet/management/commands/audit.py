"""``python -m console audit``: whether the audit is as it was written."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.audit.models import AuditHead, breaks


class Command(BaseCommand):
    help = "Check the chain of the audit, and print its end: written down elsewhere, it shows a chain made anew."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        found = list(breaks())
        if found:
            raise CommandError("The audit is not as it was written: " + "; ".join(found[:20]))
        head = AuditHead.objects.filter(pk=1).first()
        self.stdout.write(f"whole; it ends at {head}" if head else "whole; nothing is in it yet")
