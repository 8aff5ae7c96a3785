"""A job's record, whatever becomes of the writes to it: production commits on the model of NATS."""

import asyncio
import random
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from uuid import UUID

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gateway_plugin.service.jobs import JobService
from signalbox.bus.transport.frames import parse_headers
from signalbox.bus.writes import Group
from signalbox.jobs.blame import Blame
from signalbox.jobs.changes import RecordChange, WriteOutcome
from signalbox.jobs.commits import Commits, persist
from signalbox.jobs.records import Records
from signalbox.program.errors import Ambiguous, Conflict, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.messages import ErrorInfo, Job, Record, State, decode, header
from signalbox.wire.names import Header
from verification.simulation import checks
from verification.simulation.__main__ import silenced
from verification.simulation.loop import EPOCH, running
from verification.simulation.nats.bus import ModelBus
from verification.simulation.nats.link import Link
from verification.simulation.nats.messages import Msg
from verification.simulation.nats.server import Server
from workers.serving.inflight import InFlightJob

JOBS = tuple(str(UUID(int=number)) for number in range(4))
ENDS = ("success", "success", "failure", "expiry", "requeue")
ACCOUNT = "k1"
GPU_OF = {"w1": "g0", "w2": "g0", "w3": "g1"}
_SOME_JOBS = st.sets(st.sampled_from(JOBS))
_NUMBER = st.integers(0, 5)
_PAUSE = st.sampled_from([0.0, 0.1, 0.5, 2.0])
_SHARE = st.sampled_from([0.0, 0.0, 0.5])


class Hold(NamedTuple):
    """A worker's stay in a device: the holder of a later token of it ended this one."""

    worker: str
    token: int
    commits: Commits


@dataclass
class Attempt:
    """A job that a stay has claimed."""

    hold: Hold
    held: InFlightJob
    is_ended: bool = False


class Recording(RuleBasedStateMachine):
    """Four jobs, three workers in two devices, an owner. Acts begin at once and end when time has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.loop = self.stack.enter_context(running(1))
        self.history: dict[str, list[checks.Stored]] = {job: [] for job in JOBS}
        self.told: dict[str, list[tuple[float, State]]] = {job: [] for job in JOBS}
        self.tokens = dict.fromkeys(GPU_OF.values(), 0)
        self.holds: dict[str, Hold] = {}
        self.claimed: list[Attempt] = []
        self.tasks: list[asyncio.Task[None]] = []

    @initialize()
    def open(self) -> None:
        """A server with the jobs in the queue, everybody connected, and one of them at work."""

        async def connect() -> None:
            self.server = Server(clock=self._utc, rng=random.Random(1))
            self.server.declare()
            self.server.streams["STATE"].on_stored.append(self._on_state)
            self.buses = {name: await self._join(name) for name in (*GPU_OF, "gateway")}
            self.records = {name: Records(bus) for name, bus in self.buses.items()}
            bus = self.buses["gateway"]
            self.jobs = {
                job: Job(
                    id=job,
                    model="m",
                    version=1,
                    signature="s",
                    account_id=ACCOUNT,
                    created_at=self._utc(),
                    deadline_at=self._utc() + 900,
                )
                for job in JOBS
            }
            for job in self.jobs.values():
                await bus.write(
                    names.job(job.model, job.priority, job.account_id, job.id), b"", headers={Header.JOB: header(job)}
                )
            nothing = cast("Any", None)
            self.owner = JobService(bus, self.records["gateway"], nothing, nothing, nothing, wall=self._utc)

        self.loop.run_until_complete(self.loop.spawn_world(connect()))
        self.gets_the_device_and_jobs("w1", set(JOBS[1:]), 2.0)

    async def _join(self, name: str) -> ModelBus:
        link = Link(self.server, rng=random.Random(name), delay_s=(0.001, 0.2))
        return await ModelBus(self.server, link, settings=Wire(request_timeout_s=0.5)).open(name)

    def _utc(self) -> float:
        return EPOCH + self.loop.now

    def teardown(self) -> None:
        if hasattr(self, "server"):
            self.server.lost_requests = self.server.lost_answers = 0.0
            self.server.late_requests = (0.0, 0.0)
            self._pass(60.0)
            assert all(task.done() for task in self.tasks)
            for task in self.tasks:
                task.result()
            self.history_is_legal()
            self.nobody_was_told_otherwise()
        self.stack.close()

    def _on_state(self, msg: Msg) -> None:
        record = decode(Record, parse_headers(msg.head)[Header.RECORD])
        self.history[record.id].append(checks.Stored(self.loop.now, msg.seq, record, msg.data))

    def _begin(self, *acts: Coroutine[Any, Any, None], pause: float) -> None:
        """And let so much time pass that they have ended, or not."""
        self.tasks += [self.loop.spawn_world(act) for act in acts]
        self._pass(pause)

    def _pass(self, seconds: float) -> None:
        self.loop.run_until_complete(self.loop.spawn_world(asyncio.sleep(seconds)))

    # -- acts ----------------------------------------------------------------------------------------

    @rule(worker=st.sampled_from(sorted(GPU_OF)), jobs=_SOME_JOBS, pause=_PAUSE)
    def gets_the_device_and_jobs(self, worker: str, jobs: set[str], pause: float) -> None:
        """A new stay, under a greater token; what an earlier one has begun may still be under way."""
        gpu, bus = GPU_OF[worker], self.buses[worker]
        self.tokens[gpu] += 1
        commits = Commits(
            bus,
            self.records[worker],
            worker=worker,
            gpu=gpu,
            token=self.tokens[gpu],
            inline_limit_bytes=1000,
            clock=self._utc,
        )
        self.holds[gpu] = hold = Hold(worker, self.tokens[gpu], commits)
        self._begin(*(self._claim(hold, job) for job in sorted(jobs)), pause=pause)

    @rule(gpu=st.sampled_from(sorted(set(GPU_OF.values()))), job=st.sampled_from(JOBS), pause=_PAUSE)
    def is_delivered_again(self, gpu: str, job: str, pause: float) -> None:
        """To the worker that has the device."""
        if gpu in self.holds:
            self._begin(self._claim(self.holds[gpu], job), pause=pause)

    async def _claim(self, hold: Hold, job: str) -> None:
        held = InFlightJob(cast("Any", None), self.jobs[job], now_s=self.loop.now)
        await hold.commits.refresh(held)
        if self.holds[GPU_OF[hold.worker]] is hold:  # else its lease ended meanwhile
            written = await hold.commits.claim([held], Group())
            if written[held] is WriteOutcome.OURS:
                self.claimed.append(Attempt(hold, held))

    @rule(number=_NUMBER, pause=_PAUSE)
    def hears_of_a_wish(self, number: int, pause: float) -> None:
        """As :class:`workers.serving.session.Session` does, also while an end is being written."""
        if self.claimed:
            attempt = self.claimed[-1 - number % len(self.claimed)]
            self._begin(self._adopt(attempt), pause=pause)

    async def _adopt(self, attempt: Attempt) -> None:
        held = attempt.held
        found = await persist(lambda: self.records[attempt.hold.worker].read(held.job.id))
        if found is not None and found[1] >= held.revision:
            record, revision, _ = found
            if record.state.is_terminal or record.cancel_requested:
                held.record, held.revision = record, revision
                held.is_cancelled = record.cancel_requested

    @rule(number=_NUMBER, how=st.sampled_from(ENDS), pause=_PAUSE)
    def ends(self, number: int, how: str, pause: float) -> None:
        """Also one whose stay is over, or whose job another has had since: it was not told."""
        running = [attempt for attempt in self.claimed if not attempt.is_ended]
        if running:
            attempt = running[-1 - number % len(running)]
            attempt.is_ended = True
            self._begin(self._end(attempt, how), pause=pause)

    async def _end(self, attempt: Attempt, how: str) -> None:
        commits, held = attempt.hold.commits, attempt.held
        change: RecordChange[InFlightJob]
        if how == "success":
            change = await commits.success(held, held.job.id.encode(), batch=1)
        elif how == "failure":
            change = commits.failure(held, ErrorInfo(code="model_error", message="No."))
        elif how == "expiry":
            change = commits.expiry(held)
        else:
            change = commits.requeue(held, Unavailable("No."), blame=Blame.STRIKE)
        await commits.apply([change])
        if change.outcome is WriteOutcome.OURS and change.record and change.record.state.is_terminal:
            self._tell(held.job.id, change.record.state)

    @rule(job=st.sampled_from(JOBS), pause=_PAUSE)
    def owner_cancels(self, job: str, pause: float) -> None:
        async def cancel() -> None:
            try:
                found = await self.owner.cancel(job, ACCOUNT)
            except Conflict as error:
                self._tell(job, State(str(error.facts["state"])))
            except (Ambiguous, Unavailable):
                return  # he does not know
            else:
                if found.record.state.is_terminal:
                    self._tell(job, found.record.state)

        self._begin(cancel(), pause=pause)

    def _tell(self, job: str, state: State) -> None:
        self.told[job].append((self.loop.now, state))

    @rule(requests=_SHARE, answers=_SHARE, late=_SHARE)
    def network_is(self, requests: float, answers: float, late: float) -> None:
        """Shares that are lost, or acted on up to two seconds late."""
        self.server.lost_requests, self.server.lost_answers = requests, answers
        self.server.late_requests = (late, 2.0)

    # -- laws ----------------------------------------------------------------------------------------

    @invariant()
    def history_is_legal(self) -> None:
        """An end stays, attempts go up by one, tokens of a device never down, and only who claimed may end."""
        for history in self.history.values():
            assert list(checks.transitions(history)) == []

    @invariant()
    def whose_owner_wished_so_is_cancelled(self) -> None:
        for history in self.history.values():
            states = [stored.record.state for stored in history]
            wishes = [stored.record.cancel_requested for stored in history]
            if history and states[-1].is_terminal and True in wishes[:-1]:
                assert states[-1] is State.CANCELLED

    @invariant()
    def nobody_was_told_otherwise(self) -> None:
        for job, told in self.told.items():
            assert list(checks.told(told, self.history[job])) == []


def test_an_end_stays_attempts_and_tokens_never_fall_and_nobody_is_told_otherwise() -> None:
    with silenced():
        run_state_machine_as_test(
            Recording,
            settings=settings(
                max_examples=60,
                stateful_step_count=40,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
