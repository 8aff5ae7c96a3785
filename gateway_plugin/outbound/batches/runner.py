"""The task ``batches``: does the batches that have not ended, those of each account one after another."""

import asyncio
import time
from contextlib import suppress
from typing import Final

from gateway_plugin.outbound.batches.batchrun import BatchRun
from gateway_plugin.outbound.batches.linejobs import LineJobs
from gateway_plugin.outbound.settings import OutboundSettings
from gateway_plugin.service.batches import OPEN
from gateway_plugin.service.files import Files
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import Background
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import Batch
from signalbox.wire.outboundnames import batch_key

_PAUSE_S: Final = 1.0
"""Before a batch that failed is taken up again."""


class Batches:
    """Does batches for as long as :meth:`work` runs."""

    def __init__(self, bus: Bus, settings: OutboundSettings) -> None:
        self._bus = bus
        self._settings = settings
        self._changed = asyncio.Event()
        self._runs: dict[str, BatchRun] = {}

    async def work(self) -> None:
        """Until cancelled. Raises :class:`Unavailable`; begun anew it goes on from what is stored."""
        table = Table(self._bus, Bucket.BATCHES, Batch)
        table.on_change(self._take)
        jobs = LineJobs(self._bus, self._settings)
        files = Files(self._bus, most_bytes=self._settings.max_files_bytes)
        running = Background()
        try:
            await jobs.start()
            await table.start()
            while True:
                self._changed.clear()
                for batch in self._next(table):
                    run = self._runs[batch.account_id] = self._run_of(files, jobs, batch, table)
                    running.start(self._do(batch, run), name="batch")
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._due_s(table)):
                        await self._changed.wait()
        finally:
            await running.cancel()
            self._runs.clear()
            await table.close()
            await jobs.close()
            await files.close()

    def _run_of(self, files: Files, jobs: LineJobs, batch: Batch, table: Table[Batch]) -> BatchRun:
        revision = table.revision(batch_key(batch.account_id, batch.id))
        settings = self._settings
        return BatchRun(
            self._bus, files, jobs, batch, revision, window=settings.batch_window, kept_s=settings.files_kept_s
        )

    def _due_s(self, table: Table[Batch]) -> float | None:
        """Seconds until the deadline of a batch that is paused, which ends it; None where there is none."""
        now = time.time()
        paused = (batch for batch in table.items().values() if batch.state in OPEN and not _is_wanted(batch, now))
        return min((batch.deadline_at - now for batch in paused), default=None)

    def _next(self, table: Table[Batch]) -> list[Batch]:
        """Batches that may be begun: the oldest of each account that has none running, while there is room."""
        now = time.time()
        oldest: dict[str, Batch] = {}
        for batch in table.items().values():
            if batch.state in OPEN and batch.account_id not in self._runs and _is_wanted(batch, now):
                before = oldest.get(batch.account_id)
                if before is None or (batch.created_at, batch.id) < (before.created_at, before.id):
                    oldest[batch.account_id] = batch
        room = max(0, self._settings.batches_at_once - len(self._runs))
        return sorted(oldest.values(), key=lambda batch: batch.created_at)[:room]

    async def _do(self, batch: Batch, run: BatchRun) -> None:
        try:
            log.info("batch.taken", batch=batch.id, state=batch.state)
            await run.run()
        except SignalboxError as error:
            log.warning("batch.interrupted", batch=batch.id, reason=error.public_message)
            await asyncio.sleep(_PAUSE_S)
        except Exception:  # noqa: BLE001  the edge of a task: another account's batches go on
            log.exception("batch.interrupted", batch=batch.id)
            await asyncio.sleep(_PAUSE_S)
        finally:
            del self._runs[batch.account_id]
            self._changed.set()

    def _take(self, _key: str, batch: Batch | None, _revision: int) -> None:
        if batch is not None and (run := self._runs.get(batch.account_id)) is not None:
            run.notice(batch)
        self._changed.set()


def _is_wanted(batch: Batch, now: float) -> bool:
    """Whether anything is to be done for a batch: not for one that is paused, until its deadline."""
    return batch.asked != "pause" or now >= batch.deadline_at
