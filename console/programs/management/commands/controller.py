"""``python -m console controller``."""

import gc
from collections.abc import Coroutine
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from console.audit.marks import keep_marked
from console.controller import canaries, leftovers, readiness, shadows
from console.controller.reconciler import ConsoleReconciler
from console.controller.retiring import keep_retired
from console.controller.rows import keep_counted
from console.controller.storage import keep_measured
from console.deletion import leaving
from console.jobs.retention import RowRetention
from console.keys import cancelling
from console.keys.usage import keep_noted
from console.noticing import digests
from console.noticing.loop import Noticing
from console.outbox.program import run_program
from console.outbox.publisher import Publisher
from console.scaling.keeper import Keeper
from console.selections.runner import SelectionRunner
from console.trials.services import keep_forgotten
from signalbox.bus.client import Bus


class Command(BaseCommand):
    help = "Carry decisions out: publish the outbox, list repositories, heal lost documents and jobs, delete old rows."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        connection_created.connect(_keep_few_pages)
        gc.collect()
        gc.freeze()  # what is there now lives for ever: a collection looks at what came since
        run_program(settings.CONSOLE, "controller", _parts)


def _keep_few_pages(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Rows are read in order and once, so that SQLite would keep megabytes of them for nobody."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA cache_size=-1000")


def _parts(bus: Bus) -> list[Coroutine[Any, Any, None]]:
    console = settings.CONSOLE
    reconciler = ConsoleReconciler(
        bus,
        every_s=console.reconcile_s,
        vanished_after_s=console.vanished_after_s,
        kept_s=console.results_kept_s,
        sync_kept_s=console.sync_results_kept_s,
    )
    return [
        Publisher(bus).run(),
        SelectionRunner(bus).run(),
        reconciler.run(),
        keep_noted(bus),
        cancelling.keep_cancelled(),
        readiness.keep_noted(bus),
        canaries.keep_judged(console),
        shadows.keep_noted(bus),
        keep_retired(bus),
        Noticing(bus, console).run(),
        Keeper(bus, console).run(),
        digests.keep_noted(bus),
        leaving.keep_swept(console.reconcile_s),
        leftovers.keep_forgotten(console.reconcile_s),
        keep_measured(bus),
        keep_counted(),
        keep_forgotten(),
        keep_marked(bus, console.audit_mark_s),
        RowRetention(days=console.jobs_kept_days, rows=console.jobs_kept_rows).run(),
    ]
