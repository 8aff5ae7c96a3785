"""Submitting, retrying, cancelling and ending in every order, with deaths and late writes, on a real nats-server.

The gateway's own acceptance, idempotency and jobs run on a connection that dies at a drawn call, loses what is
written from there on, keeps it and says nothing, or lets it arrive much later.
"""

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from gateway_plugin.admission.acceptance import Acceptance
from gateway_plugin.admission.idempotency import Idempotency
from gateway_plugin.admission.queues import Admission
from gateway_plugin.admission.submission import SubmitOptions, Submitter
from gateway_plugin.api.routes import Operation, Route
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.service.jobs import JobService
from gateway_plugin.service.request import Request
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import Stored
from signalbox.jobs import life
from signalbox.jobs.records import Found, Records
from signalbox.program.errors import (
    Ambiguous,
    Conflict,
    KeyReused,
    NotFound,
    SignalboxError,
    StaleRevision,
    Unavailable,
)
from signalbox.program.settings import Wire
from signalbox.wire.messages import ApiKey, Job, Record, State, decode
from signalbox.wire.names import Header, Stream
from tests import depth
from tests.rigs import streams
from tests.rigs.gateway import model
from tests.rigs.natsserver import NatsServer

T = TypeVar("T")
READY = PreparedVersion(model(), model().versions[0])
NAMES = "klmnop"
ANSWER_TRIES = 10
"""Each of some seconds."""
Slot = tuple[str, str]
"""An account and an Idempotency-Key of its own."""


class Crash(BaseException):
    """The process is gone: nothing of ours may catch it."""


class Fate(Enum):
    """What befalls a gateway's calls from a drawn one on. Reads that are lost fail, whatever the writes do."""

    DIES_BEFORE = "dies before it"
    DIES_AFTER = "dies after it"
    LOST = "written nowhere"
    KEPT = "written, and the answer lost"
    LATE = "written later"


FATAL = (Fate.DIES_BEFORE, Fate.DIES_AFTER)
SUBMITTING = ("read", "measure", "write $KV", "write jobs", "write jobs")
"""The calls of a submission; what becomes of the last matters most."""
FATES = (*Fate, Fate.LATE, Fate.LATE)
CANCELLING = ("read", "write", "tell")
_NUMBER = st.integers(0, 11)
"""Which of those that there are now; the accounts have a dozen slots together."""


class Fault(NamedTuple):
    """fate: of every call from the first one on that begins so."""

    on: str
    fate: Fate


class FrailBus:
    """A connection with a fate. late: what is still on its way."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.fault: Fault | None = None
        self.late: list[Callable[[], Awaitable[int]]] = []

    def grouped(self, stream: Stream) -> "FrailBus":
        return self

    async def write(
        self, subject: str, data: bytes = b"", *, headers: Mapping[str, str] | None = None, expect: int | None = None
    ) -> int:
        call = partial(self._bus.write, subject, data, headers=headers, expect=expect)
        fate = self._fate(f"write {subject}")
        if fate is Fate.LATE:
            self.late.append(call)
        if fate in {Fate.DIES_AFTER, Fate.KEPT, None}:
            revision = await call()
            if fate is None:
                return revision
        if fate in FATAL:
            raise Crash
        raise Ambiguous

    async def leader_get(self, stream: str, subject: str) -> Stored | None:
        return await self._read(f"read {subject}", self._bus.leader_get(stream, subject))

    async def consumer_info(self, name: str) -> Any:
        return await self._read("measure", self._bus.consumer_info(name))

    async def request_json(self, subject: str, doc: object | None = None) -> dict[str, Any]:
        return await self._read("read", self._bus.request_json(subject, doc))

    async def publish(self, subject: str, data: bytes = b"") -> None:
        await self._read("tell", self._bus.publish(subject, data))

    async def _read(self, what: str, call: Coroutine[Any, Any, T]) -> T:
        fate = self._fate(what)
        if fate is None:
            return await call
        call.close()
        if fate in FATAL:
            raise Crash
        raise Unavailable

    def _fate(self, what: str) -> Fate | None:
        if self.fault is None or not what.startswith(self.fault.on):
            return None
        self.fault = self.fault._replace(on="")
        return self.fault.fate


class Gateway:
    """One process of the plugin, as far as it accepts, finds and cancels. Little room, so that ``lo`` is met often."""

    def __init__(self, bus: Bus) -> None:
        self.frail = FrailBus(bus)
        frail = cast("Bus", self.frail)
        nothing = cast("Any", None)
        self.jobs = JobService(frail, Records(frail), nothing, nothing, nothing)
        self.acceptance = Acceptance(
            Submitter(frail, inline_limit_bytes=1024),
            Admission(frail, cast("Any", SimpleNamespace(generation=0)), fair_room=1),
            Idempotency(frail, self.jobs, request_timeout_s=0.0, wall=time.time),
            instance="gateway",
            check=lambda: None,
        )

    async def submit(self, slot: Slot, body: str) -> str:
        """The job's id."""
        account, name = slot
        key = ApiKey(id=account, hmac="")
        request = Request("POST", "/v1/jobs", {"Idempotency-Key": name}, body.encode())
        idem = await self.acceptance.look_up(request, key, *Route(Operation.SUBMIT).parts)
        assert idem is not None
        if idem.found is not None:
            return idem.found.record.id
        inputs = DecodedInputs(f"{account} {name}".encode(), "serving_default", "row", 1, "")
        entry = await self.acceptance.admit({}, key, READY, inputs, SubmitOptions(), idem, is_waiting=False)
        await self.acceptance.write(entry)
        return entry.job.id


class World(RuleBasedStateMachine):
    """What callers were told, beside what the server stores.

    What is drawn, and which rule may come next, depends on nothing that a gateway answered: Hypothesis plays a
    beginning again and demands that it has the same choices, and a real server may answer otherwise.
    """

    runner: asyncio.Runner
    bus: Bus

    def __init__(self) -> None:
        super().__init__()
        prefix = uuid.uuid4().hex[:8]
        self.accounts = (f"{prefix}a", f"{prefix}b")
        self.gateways = [self._born(), self._born()]
        self.late: list[Callable[[], Awaitable[int]]] = []
        self.tried: dict[Slot, set[str]] = defaultdict(set)
        self.bound: dict[Slot, str] = {}
        self.ids: dict[Slot, str] = {}
        self.ends: dict[str, State] = {}
        self.claims: dict[str, tuple[Record, int]] = {}

    def _born(self) -> Gateway:
        async def make() -> Gateway:
            return Gateway(self.bus)

        return self.runner.run(make())

    @rule(
        which=st.integers(0, 1),
        account=st.integers(0, 1),
        name=st.sampled_from(NAMES),
        body=st.sampled_from("xxxy"),
        fault=st.none() | st.builds(Fault, st.sampled_from(SUBMITTING), st.sampled_from(FATES)),
    )
    def submit(self, which: int, account: int, name: str, body: str, fault: Fault | None) -> None:
        self._submit(which, (self.accounts[account], name), body, fault)

    @rule(which=st.integers(0, 1), number=_NUMBER, other=_NUMBER)
    def retry(self, which: int, number: int, other: int) -> None:
        in_doubt = sorted(self.tried.keys() - self.ids.keys())
        if in_doubt:
            slot = _one(in_doubt, number)
            self._submit(which, slot, _one(sorted(self.tried[slot]), other), None)

    def _submit(self, which: int, slot: Slot, body: str, fault: Fault | None) -> None:
        gateway = self.gateways[which]
        gateway.frail.fault = fault
        self.tried[slot].add(body)
        try:
            job_id = self.runner.run(gateway.submit(slot, body))
        except KeyReused:
            assert self.tried[slot] != {body}
            assert self.bound.get(slot) != body
        except SignalboxError:
            assert fault is not None
        except Crash:
            self.late += gateway.frail.late
            self.gateways[which] = self._born()
        else:
            self._told(slot, body, job_id)
        gateway.frail.fault = None

    @rule(account=st.integers(0, 1), name=st.sampled_from(NAMES[:2]), bodies=st.sampled_from(["xx", "xy"]))
    def race(self, account: int, name: str, bodies: str) -> None:
        slot = (self.accounts[account], name)
        self.tried[slot].update(bodies)

        async def both() -> list[str | BaseException]:
            calls = (g.submit(slot, b) for g, b in zip(self.gateways, bodies, strict=True))
            return await asyncio.gather(*calls, return_exceptions=True)

        got = self.runner.run(both())
        assert any(isinstance(one, str | KeyReused) for one in got), got
        for body, one in zip(bodies, got, strict=True):
            if isinstance(one, str):
                self._told(slot, body, one)
            else:
                assert isinstance(one, KeyReused | Conflict), one

    @rule(number=_NUMBER)
    def arrive(self, number: int) -> None:
        late = self._on_its_way
        if not late:
            return
        call = _one(late, number)
        for kept in (self.late, *(gateway.frail.late for gateway in self.gateways)):
            if call in kept:
                kept.remove(call)
        self.runner.run(_whatever(call))

    @rule(
        number=_NUMBER,
        which=st.integers(0, 1),
        fault=st.none() | st.builds(Fault, st.sampled_from(CANCELLING), st.sampled_from(FATAL)),
    )
    def cancel(self, number: int, which: int, fault: Fault | None) -> None:
        if not self.ids:
            return
        slot = _one(sorted(self.ids), number)
        gateway = self.gateways[which]
        gateway.frail.fault = fault
        try:
            found = self.runner.run(gateway.jobs.cancel(self.ids[slot], slot[0]))
        except Conflict:
            assert self.ends.get(self.ids[slot], State.SUCCEEDED) is State.SUCCEEDED
        except Crash:
            self.late += gateway.frail.late
            self.gateways[which] = self._born()
        else:
            self._saw(found.record)
        gateway.frail.fault = None

    @rule(number=_NUMBER)
    def claim(self, number: int) -> None:
        if not self.ids:
            return
        job_id = self.ids[_one(sorted(self.ids), number)]
        claimed = self.runner.run(_claim(self.bus, job_id))
        if claimed is not None:
            self.claims[job_id] = claimed

    @rule(number=_NUMBER, is_cancelled=st.booleans())
    def commit(self, number: int, is_cancelled: bool) -> None:
        if not self.claims:
            return
        slot = _one([s for s in sorted(self.ids) if self.ids[s] in self.claims], number)
        job_id = self.ids[slot]

        async def both() -> tuple[State | None, Found | None]:
            ending = _commit(self.bus, *self.claims.pop(job_id))
            if not is_cancelled:
                return await ending, None
            return await asyncio.gather(ending, _cancelled(self.gateways[0].jobs, job_id, slot[0]))

        state, found = self.runner.run(both())
        if state is not None:
            assert self.ends.setdefault(job_id, state) is state
        if found is not None and found.record.state.is_terminal:  # else it asked before the end
            self._saw(found.record)

    @rule(number=_NUMBER, which=st.integers(0, 1))
    def look(self, number: int, which: int) -> None:
        if not self.ids:
            return
        slot = _one(sorted(self.ids), number)
        jobs = self.gateways[which].jobs
        self._saw(self.runner.run(jobs.find(self.ids[slot], slot[0])).record)
        stranger = next(account for account in self.accounts if account != slot[0])
        try:
            self.runner.run(jobs.find(self.ids[slot], stranger))
        except NotFound:
            return
        raise AssertionError("somebody else's job was found")

    def _all_jobs(self) -> list[Stored]:
        """Read again where a busy machine does not answer in time: what is judged is what is there."""
        for _ in range(ANSWER_TRIES):
            with suppress(Unavailable):
                return self.runner.run(self.bus.list_latest(Stream.JOBS, ["jobs.>"]))
        raise AssertionError("NATS does not answer")

    def teardown(self) -> None:
        while self._on_its_way:
            late, self.late = self._on_its_way, []
            for gateway in self.gateways:
                gateway.frail.late = []
            for call in late:
                self.runner.run(_whatever(call))
        found: dict[str, list[str]] = defaultdict(list)
        for stored in self._all_jobs():
            job = decode(Job, stored.headers[Header.JOB])
            if job.account_id in self.accounts:
                found[stored.data.decode()].append(job.id)
        for what, ids in found.items():
            assert len(ids) == 1, f"{what}: {ids}"
        for (account, name), job_id in self.ids.items():
            assert found[f"{account} {name}"] == [job_id]

    @property
    def _on_its_way(self) -> list[Callable[[], Awaitable[int]]]:
        return [*self.late, *(call for gateway in self.gateways for call in gateway.frail.late)]

    def _told(self, slot: Slot, body: str, job_id: str) -> None:
        assert self.bound.setdefault(slot, body) == body
        assert self.ids.setdefault(slot, job_id) == job_id

    def _saw(self, record: Record) -> None:
        if record.state.is_terminal or record.id in self.ends:
            assert self.ends.setdefault(record.id, record.state) is record.state


def _one(among: Sequence[T], number: int) -> T:
    """The one of that number, counted round: a number drawn before their count was known."""
    return among[number % len(among)]


async def _whatever(call: Callable[[], Awaitable[int]]) -> None:
    """A write that was on its way arrives; its answer is lost."""
    try:
        await call()
    except StaleRevision:
        return


async def _claim(bus: Bus, job_id: str) -> tuple[Record, int] | None:
    """What a worker does that was given the job."""
    records = Records(bus)
    queued, known = await records.queued(job_id), await records.read(job_id)
    assert queued is not None
    job = decode(Job, queued.headers[Header.JOB])
    try:
        record = life.claimed(job, known[0] if known else None, worker="w", gpu="g", token=1, now=time.time())
    except Conflict:
        return None
    return record, await records.write(record, expect=known[1] if known else 0)


async def _commit(bus: Bus, record: Record, revision: int) -> State | None:
    """It ends the job, and knows how; where somebody else wrote meanwhile, only a wish to cancel is its business."""
    records = Records(bus)
    ended = life.succeeded(record, now=time.time(), batch=1, size_bytes=0)
    try:
        await records.write(ended, expect=revision)
    except StaleRevision:
        found = await records.read(record.id)
        assert found is not None
        if not found[0].cancel_requested or found[0].attempt != record.attempt:
            return None
        ended = life.cancelled(found[0], now=time.time())
        await records.write(ended, expect=found[1])
    return ended.state


async def _cancelled(jobs: JobService, job_id: str, account: str) -> Found | None:
    try:
        return await jobs.cancel(job_id, account)
    except Conflict:
        return None


@pytest.mark.proof
def test_one_key_is_one_job_and_one_end_whatever_dies_or_comes_late(shared_server: NatsServer) -> None:
    with asyncio.Runner() as runner:
        World.runner = runner
        World.bus = runner.run(_clean(shared_server.url))
        try:
            run_state_machine_as_test(
                World,
                settings=settings(
                    max_examples=depth.at(short=40, full=150),
                    stateful_step_count=25,
                    database=None,
                    phases=[Phase.generate],  # a server with a past of its own does not shrink well
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(World.bus.close())


async def _clean(url: str) -> Bus:
    bus = await Bus.connect(Wire(nats_url=url), role="admin")
    await streams.make_clean(bus)
    return bus
