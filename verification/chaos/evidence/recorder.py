"""Writes down what NATS republishes of records and leases while a run goes on."""

import asyncio
from pathlib import Path
from typing import Self

from signalbox.bus.client import Bus, Message, Stored, Subscription
from signalbox.wire import messages, names, workerdocs
from signalbox.wire.events import is_removal
from signalbox.wire.messages import Record
from signalbox.wire.names import Bucket, Header
from verification.chaos.evidence.journal import Entry, Journal


class Recorder:
    """Writes down what NATS republishes of records and leases.

    While NATS is dead nothing is republished, and what it stored in its last moment may never be: a revision
    whose predecessor was not seen tells so (``last``), and checkers know a gap from a step.
    """

    def __init__(self, bus: Bus, folder: Path) -> None:
        self._bus = bus
        self._records = Journal(folder / "records.jsonl")
        self._leases = Journal(folder / "leases.jsonl")
        self._subscriptions: list[Subscription] = []
        self.states: dict[str, str] = {}
        self.attempts: dict[str, int] = {}
        self.ended = 0
        self.holders: dict[str, Entry] = {}
        self.changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        for subject, handler in (
            (names.event_of_state(), self._on_record),
            (names.event_of_key(Bucket.LEASES), self._on_lease),
        ):
            self._subscriptions.append(await self._bus.subscribe(subject, handler))
        return self

    async def __aexit__(self, *_: object) -> None:
        for subscription in self._subscriptions:
            await subscription.close()
        for journal in (self._records, self._leases):
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
            lease = messages.decode(workerdocs.Lease, message.data)
            entry = _lease_facts(gpu, lease, step["seq"])
            self._leases.note(**step, **entry)
            self._hold(gpu, entry)
        else:
            why = message.headers.get(Header.MARKER_REASON) or message.headers.get(Header.KV_OPERATION, "?")
            self._leases.note(**step, gpu=gpu, state="GONE", why=why)
            self.holders.pop(gpu, None)
        self._tell()

    def learn(self, stored: Stored) -> None:
        """A lease as it was read rather than learned of."""
        gpu = names.untoken(stored.subject.rpartition(".")[2])
        if stored.data and not is_removal(stored.headers):
            lease = messages.decode(workerdocs.Lease, stored.data)
            self._hold(gpu, _lease_facts(gpu, lease, stored.seq))
        else:
            self.holders.pop(gpu, None)
        self._tell()

    def _hold(self, gpu: str, entry: Entry) -> None:
        if entry["state"] == "HELD":
            self.holders[gpu] = entry
        else:
            self.holders.pop(gpu, None)

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def _step(message: Message) -> Entry:
    headers = message.headers
    return {"seq": int(headers.get(Header.SEQUENCE, 0)), "last": int(headers.get(Header.LAST_SEQUENCE, 0))}


def _lease_facts(gpu: str, lease: workerdocs.Lease, seq: int) -> Entry:
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
        "account": record.account_id,
        "attempt": record.attempt,
        "strikes": record.strikes,
        "worker": record.worker,
        "gpu": record.gpu,
        "token": record.token,
        "cancel": record.cancel_requested,
        "why": record.error.code if record.error is not None else "",
    }
