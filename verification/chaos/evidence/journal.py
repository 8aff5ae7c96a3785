"""What a run writes down, one JSON object a line, so that checkers can judge it later and elsewhere.

======================  =============================================================================
``ledger.jsonl``        what clients did and saw; on disk before a request is sent and before an answer counts
``records.jsonl``       every change of a job's record that NATS republished
``leases.jsonl``        every revision of every lease key, expiry markers too
``faults.jsonl``        what was done to whom, when, and what was measured
``final.jsonl``         every record as it stands at the end, and what the queue still holds
``intervals.log``       who was inside a device and when (:mod:`workers.runner.intervals`)
======================  =============================================================================

Instants ``at`` are CLOCK_BOOTTIME seconds, which every process of a machine shares.
"""

import asyncio
import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

import msgspec

Entry = dict[str, Any]
SECRETS: Final = "secrets.json"
"""Beside the folder ``history``: what no log may hold, by name."""


def now() -> float:
    """CLOCK_BOOTTIME in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lines(path: Path) -> list[bytes]:
    """The finished lines of a file that others may be appending to; none where there is no file.

    A reader can see half of one write: of a line across two pages the kernel shows the first page first.
    """
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def read(path: Path) -> list[Entry]:
    """All entries of one file; none where there is no file."""
    return [json.loads(line) for line in lines(path)]


class Journal:
    """Appends lines to one file. Those of :meth:`keep` are on disk when it returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        self._encode = msgspec.json.Encoder().encode
        self._waiting: deque[bytes] = deque()
        self._syncing: asyncio.Task[None] | None = None

    def note(self, **fields: Any) -> None:
        """One line, stamped."""
        os.write(self._file, self._encode({"at": round(now(), 4), **fields}) + b"\n")

    async def keep(self, **fields: Any) -> None:
        """One line, stamped and synced; many callers share one sync."""
        self._waiting.append(self._encode({"at": round(now(), 4), **fields}) + b"\n")
        while self._syncing is not None:  # it may have begun before our line was there
            await asyncio.shield(self._syncing)
            if not self._waiting:
                return
        self._syncing = asyncio.create_task(self._sync())
        await asyncio.shield(self._syncing)

    async def _sync(self) -> None:
        lines = b"".join(self._waiting)
        self._waiting.clear()
        try:
            await asyncio.to_thread(self._write, lines)
        finally:
            self._syncing = None

    def _write(self, lines: bytes) -> None:
        os.write(self._file, lines)
        os.fdatasync(self._file)

    def close(self) -> None:
        """No more lines."""
        os.close(self._file)
