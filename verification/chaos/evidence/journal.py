"""What a run writes down, one JSON object a line, so that checkers can judge it later and elsewhere.

======================  =============================================================================
``ledger.jsonl``        what clients did and saw; on disk before a request is sent and before an answer counts
``records.jsonl``       every change of a job's record that NATS republished
``leases.jsonl``        every revision of every lease key, expiry markers too
``waiters.jsonl``       every revision of every ticket
``processes.jsonl``     births and deaths of supervisors, guards, runners and gateways
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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from signalbox.bus.client import Bus, Message, Stored, Subscription
from signalbox.program.errors import SignalboxError
from signalbox.wire import messages, names, tensors
from signalbox.wire.events import is_removal
from signalbox.wire.messages import Record, Ticket
from signalbox.wire.names import Bucket, Header

Entry = dict[str, Any]
SECRETS: Final = "secrets.json"
"""Beside the folder ``history``: what no log may hold, by name."""


def now() -> float:
    """CLOCK_BOOTTIME in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read(path: Path) -> list[Entry]:
    """All lines of one file; none where there is no file."""
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


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


class Recorder:
    """The flight recorder: writes down what NATS republishes of records, leases and tickets.

    While NATS is dead nothing is republished, and what it stored in its last moment may never be: a revision
    whose predecessor was not seen tells so (``last``), and checkers know a gap from a step.
    """

    def __init__(self, bus: Bus, folder: Path) -> None:
        self._bus = bus
        self._records = Journal(folder / "records.jsonl")
        self._leases = Journal(folder / "leases.jsonl")
        self._waiters = Journal(folder / "waiters.jsonl")
        self._subscriptions: list[Subscription] = []
        self.states: dict[str, str] = {}
        self.attempts: dict[str, int] = {}
        self.ended = 0
        self.holders: dict[str, Entry] = {}
        self.tickets: dict[str, Entry] = {}
        self.changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        for subject, handler in (
            (names.event_of_state(), self._on_record),
            (names.event_of_key(Bucket.LEASES), self._on_lease),
            (names.event_of_key(Bucket.WAITERS), self._on_ticket),
        ):
            self._subscriptions.append(await self._bus.subscribe(subject, handler))
        return self

    async def __aexit__(self, *_: object) -> None:
        for subscription in self._subscriptions:
            await subscription.close()
        for journal in (self._records, self._leases, self._waiters):
            journal.close()

    def _on_record(self, message: Message) -> None:
        record = messages.decode(Record, message.headers[Header.RECORD])
        self._records.note(**_step(message), **facts_of(record))
        if record.state.is_terminal and self.states.get(record.id) != record.state.value:
            self.ended += 1
        self.states[record.id] = record.state.value
        self.attempts[record.id] = record.attempt
        self._tell()

    def _on_lease(self, message: Message) -> None:
        gpu = names.untoken(message.subject.rpartition(".")[2])
        step = _step(message)
        if message.data and not is_removal(message.headers):
            lease = messages.decode(messages.Lease, message.data)
            entry = _lease_facts(gpu, lease, step["seq"])
            self._leases.note(**step, **entry)
            self._hold(gpu, entry)
        else:
            why = message.headers.get(Header.MARKER_REASON) or message.headers.get(Header.KV_OPERATION, "?")
            self._leases.note(**step, gpu=gpu, state="GONE", why=why)
            self.holders.pop(gpu, None)
        self._tell()

    def learn(self, stored: Stored) -> None:
        """A lease as it was read rather than heard of."""
        gpu = names.untoken(stored.subject.rpartition(".")[2])
        if stored.data and not is_removal(stored.headers):
            lease = messages.decode(messages.Lease, stored.data)
            self._hold(gpu, _lease_facts(gpu, lease, stored.seq))
        else:
            self.holders.pop(gpu, None)
        self._tell()

    def _hold(self, gpu: str, entry: Entry) -> None:
        if entry["state"] == "HELD":
            self.holders[gpu] = entry
        else:
            self.holders.pop(gpu, None)

    def _on_ticket(self, message: Message) -> None:
        step = _step(message)
        gpu, worker = (names.untoken(part) for part in message.subject.split(".")[-2:])
        if not message.data or is_removal(message.headers):
            self._waiters.note(**step, gpu=gpu, worker=worker, number=0)
            self.tickets.pop(worker, None)
        else:
            ticket = messages.decode(Ticket, message.data)
            entry = {"gpu": gpu, "worker": worker, "number": ticket.number or step["seq"]}
            self._waiters.note(**step, **entry)
            self.tickets[worker] = entry
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def _step(message: Message) -> Entry:
    headers = message.headers
    return {"seq": int(headers.get(Header.SEQUENCE, 0)), "last": int(headers.get(Header.LAST_SEQUENCE, 0))}


def _lease_facts(gpu: str, lease: messages.Lease, seq: int) -> Entry:
    is_held = lease.state == "HELD"
    acquired = max(seq, lease.last_token + 1)  # the sequence, unless a disk forgot how far it was
    return {
        "gpu": gpu,
        "state": lease.state,
        "owner": lease.owner,
        "boot": lease.boot,
        "token": (lease.token or acquired) if is_held else lease.last_token,
        "beats": lease.beats,
        "next": lease.next,
        "pid": lease.pid,
    }


def facts_of(record: Record) -> Entry:
    """What checkers need of a record."""
    return {
        "job": record.id,
        "model": record.model,
        "state": record.state.value,
        "key": record.key_id,
        "attempt": record.attempt,
        "crashes": record.crashes,
        "worker": record.worker,
        "gpu": record.gpu,
        "token": record.token,
        "cancel": record.cancel_requested,
        "why": record.error.code if record.error is not None else "",
    }


async def snapshot(
    bus: Bus, path: Path, values: Mapping[str, Any], *, after: int = 0, kept: Mapping[str, Entry] = {}
) -> None:
    """``final.jsonl``: every record with its result, and the open ends of the queue.

    values: what is added to the last line. after: as of :func:`standing`. kept: what that said earlier; of these who
    had ended and are there no more were thrown away in time. Raises :class:`Unavailable`.
    """
    found = await standing(bus, after=after)
    ended = {job: e for job, e in kept.items() if messages.State(e["state"]).is_terminal}
    journal = Journal(path)
    for entry in {**ended, **found}.values():
        journal.note(**entry)
    journal.note(end=True, **values)
    journal.close()


async def standing(bus: Bus, *, after: int = 0) -> dict[str, Entry]:
    """Every record by job. after: sequence of the last that is not the run's. Raises :class:`Unavailable`."""
    found = {}
    for stored in await bus.list_latest(names.Stream.STATE, [names.RECORDS]):
        if stored.seq > after:
            record = messages.decode(Record, stored.headers[Header.RECORD])
            entry = {"seq": stored.seq, "y": _value_of(record, stored.data), **facts_of(record)}
            found[record.id] = entry
    return found


def _value_of(record: Record, frame: bytes) -> float | None:
    from tests.rigs.submit import read_floats

    if record.state is not messages.State.SUCCEEDED or record.ref is not None:
        return None
    found = next((t for t in tensors.decode(frame) if t.name == "y"), None)  # others' models too
    return None if found is None else read_floats(frame)[0]


async def consumers_left(bus: Bus, models: Iterable[str]) -> dict[str, int]:
    """Jobs not yet acknowledged, by consumer; only those that have any."""
    left = {}
    for model in models:
        for priority in names.PRIORITIES:
            try:
                info = await bus.consumer_info(names.consumer(model, priority))
            except SignalboxError:
                left[names.consumer(model, priority)] = -1
                continue
            if count := info.num_pending + info.num_ack_pending:
                left[names.consumer(model, priority)] = count
    return left
