"""Whole simulated worlds: the same from the same seed, without violations, and able to show one."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from signalbox.jobs.repair import NOBODY_LEFT
from signalbox.wire.messages import ErrorInfo, Record, State
from signalbox.wire.names import Priority
from tests import depth
from verification.simulation import checks
from verification.simulation.__main__ import play, silenced
from verification.simulation.clients import Caller, Entry
from verification.simulation.faults import Faults
from verification.simulation.hosts import Worker
from verification.simulation.kernel import Machine
from verification.simulation.oracle import Oracle
from verification.simulation.runner import SimRunner, Task
from verification.simulation.world import LONG, SHORT, Outcome, World, draw
from workers.device import leased
from workers.guard import process
from workers.guard.machine import GuardMachine
from workers.lease.rules import Rules
from workers.lease.tickets import WaitQueue
from workers.queue.awake import AwakeModel, Received
from workers.recovery import removal
from workers.runner import frames, wire
from workers.settings import WorkerSettings

pytestmark = pytest.mark.proof
ROOT = Path(__file__).parents[4]
PRESENCE_TTL_S = WorkerSettings().presence_ttl_s
SEEDS = depth.at(short=30, full=100)
"""Of which those are played whose world is of the kind that a test is about."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with silenced():
        yield


def test_same_seed_is_the_same_world_in_another_process() -> None:
    """Whoever finds something must be able to see it again."""

    def story() -> str:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "verification.simulation", "--first", "77", "--trace"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    first = story()
    assert first.count("\n") > 100
    assert story() == first


class Undisturbed(Faults):
    """Nothing happens."""

    def plan(self) -> None:
        pass


class FreezeHolder(Faults):
    """The first holder stops for good, so many seconds after its record was written; nothing else happens."""

    delay_s = 1.0

    def plan(self) -> None:
        self.is_done = False
        self.world.oracle.on_held.append(self.on_held)

    def on_held(self, boot: str) -> None:
        if not self.is_done:
            self.is_done = True
            victim = next(w for w in self.world.workers if boot.startswith(f"{w.name}."))
            assert victim.process is not None
            self.world.later(self.delay_s, victim.process.stop)

    def heal(self) -> None:
        """It stays frozen."""


class FreezeHeir(FreezeHolder):
    """Between the record and the device."""

    delay_s = 0.0


class ReceiveLate(FreezeHolder):
    """A runner is stopped before it learns that it may enter, and learns it while guard and supervisor are stopped."""

    def on_held(self, boot: str) -> None:
        if not self.is_done:
            self.is_done = True
            victim = next(w for w in self.world.workers if boot.startswith(f"{w.name}."))
            runner, process = self._member(victim, "runner"), self._member(victim, "guard")
            assert victim.process is not None
            assert runner is not None
            assert process is not None
            runner.stop()
            for stopped in (victim.process, process):
                self.world.later(0.5, stopped.stop)
                self.world.later(9.0, stopped.resume)
            self.world.later(8.0, runner.resume)


class FreezeRunners(Faults):
    """Every runner is stopped again and again, for longer than any job may run; nothing else happens."""

    def plan(self) -> None:
        for worker in self.world.workers:
            for number in range(3):
                self.world.later(2.0 + 4 * number, self._freeze, worker)

    def _freeze(self, worker: Worker) -> None:
        runner = self._member(worker, "runner")
        if runner is not None:
            runner.stop()
            self.world.later(20.0, runner.resume)


class SuspendHolder(FreezeHolder):
    """Its whole machine, for longer than any lease, wait for an acknowledgement or silence of a client's."""

    seconds = 35.0

    def on_held(self, boot: str) -> None:
        if not self.is_done:
            self.is_done = True
            machine = self.world.machines[0]
            self.world.later(self.delay_s, self.naps.suspend, machine, self.seconds, "nap")


class SuspendFrozenHolder(FreezeHolder):
    """After a first nap its supervisor stops for good: nobody but the guard minds its deadline."""

    def on_held(self, boot: str) -> None:
        if not self.is_done:
            self.naps.suspend(self.world.machines[0], 3.0, "nap")
            self.world.later(3.5, super().on_held, boot)


class SuspendAnsweringMachine(Faults):
    """Each machine once, for so long that its jobs go to the other, while a result is between runner and supervisor."""

    def plan(self) -> None:
        self.asleep: set[str] = set()

    def on_ran(self, machine: Machine) -> None:
        if machine.name not in self.asleep:
            self.asleep.add(machine.name)
            self.world.later(machine.latency_s / 4, self.naps.suspend, machine, 25.0, "nap")


class DriftAndFreeze(FreezeHolder):
    """The holder stops for good. Its machine's clock is too slow and NATS's too fast, by ``error`` each."""

    error = 0.05

    def plan(self) -> None:
        super().plan()
        self.world.nats_clock.rate = 1 + self.error
        for machine in self.world.machines:
            machine.clock.rate = 1 - self.error


class DriftFar(DriftAndFreeze):
    """Beyond what the margin bears."""

    error = 0.3


class KillForGood(FreezeHolder):
    """The first holder is killed while jobs wait with it, and never starts again."""

    delay_s = 6.0

    def on_held(self, boot: str) -> None:
        if not self.is_done:
            self.is_done = True
            victim = next(w for w in self.world.workers if boot.startswith(f"{w.name}."))
            self.world.later(self.delay_s, self._end, victim)

    def _end(self, victim: Worker) -> None:
        victim.is_wanted = False
        assert victim.process is not None
        victim.process.kill()


def played(faults: type[Faults], **shape: Any) -> list[Outcome]:
    return [play(seed, make_faults=faults, shape=replace(draw(seed), **{"workers": (2,)} | shape)) for seed in range(4)]


def is_unsafe(what: str) -> bool:
    """Two in one device, or a token that did not grow."""
    return " entered " in what or " was let in with token " in what


def violations(outcomes: list[Outcome]) -> list[str]:
    return [what for outcome in outcomes for what in outcome.violations]


def test_frozen_holder_is_fenced_in_time_and_another_goes_on() -> None:
    outcomes = played(FreezeHolder)
    assert violations(outcomes) == []
    assert all(len(set(outcome.inside)) == 2 for outcome in outcomes)


@pytest.mark.parametrize("workers", [(2,), (1, 1)])
def test_jobs_of_a_worker_that_never_comes_back_are_soon_run_by_another(
    workers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds: list[World] = []
    init = Caller.__init__

    def make_faults(world: World) -> Faults:
        worlds.append(world)
        return KillForGood(world)

    def harmless(self: Caller, world: World, number: int) -> None:
        init(self, world, number)
        self.task = Task("", "fine", self.task.seconds)
        self.delay_s, self.deletes = 0.0, False  # the time from its submission to its last record is looked at

    monkeypatch.setattr(Caller, "__init__", harmless)
    for seed in range(6):
        shape = replace(draw(seed), workers=workers, rules=SHORT)
        assert play(seed, make_faults=make_faults, shape=shape).violations == []
    found = 0
    for world in worlds:
        for job_id, deliveries in world.oracle.deliveries.items():
            found += len({each.to for each in deliveries}) > 1
            took_s = world.oracle.records[job_id][-1].at - world.ledger.entries[job_id].begun_at
            assert took_s <= SHORT.ttl_s + PRESENCE_TTL_S + 4.0
    assert found


def test_frozen_runner_costs_no_job_its_fate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert violations(played(FreezeRunners, jobs=20)) == []
    judge = wire._Thread._over

    def at_once(self: wire._Thread) -> None:
        judge(self)
        self.beat(0.0)

    monkeypatch.setattr(wire._Thread, "_over", at_once)
    found = violations(played(FreezeRunners, jobs=20))
    assert any("failed with deadline_exceeded" in what for what in found)


def test_guard_that_ignores_its_deadline_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardMachine, "_on_timer", lambda *_: None)
    assert any("its last confirmed heartbeat" in what for what in violations(played(FreezeHolder)))


@pytest.mark.slow
def test_waiter_that_jumps_the_line_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def last(self: WaitQueue, *, but: str) -> str:
        return max(((n, w) for w, n in self._numbers.items() if w != but), default=(0, ""))[1]

    seeds = [seed for seed in range(200) if draw(seed).is_calm][:8]
    assert violations([play(seed) for seed in seeds[:3]]) == []
    monkeypatch.setattr(WaitQueue, "head", last)
    assert any("was overtaken" in what for what in violations([play(seed) for seed in seeds]))


def test_waiter_gets_a_device_whose_next_holder_froze_on_its_way_in() -> None:
    """Found by the chaos storm: its guard had the flock, and nobody could take it."""
    outcomes = played(FreezeHeir)
    assert violations(outcomes) == []
    assert all(outcome.inside for outcome in outcomes)


def test_runner_may_receive_its_word_late_while_its_guard_is_stopped_and_keeps_the_lock() -> None:
    """Found by a world (112211), and a mistake of the model: who came while its guard was stopped was not excused."""
    outcomes = played(ReceiveLate)
    assert violations(outcomes) == []
    assert all(len(set(outcome.inside)) == 2 for outcome in outcomes)


def test_machine_that_was_suspended_serves_again() -> None:
    outcomes = played(SuspendHolder, lull_s=60.0)
    assert violations(outcomes) == []
    assert all(outcome.faults == {"nap": 1} for outcome in outcomes)
    assert all(len(outcome.inside) > 1 for outcome in outcomes)


@pytest.mark.slow
def test_lease_counted_on_a_clock_that_sleeps_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deadlines are the guard's past: whoever is let in is ended at once, for ever."""
    monkeypatch.setattr(leased, "boottime", lambda: time.monotonic())  # noqa: PLW0108  see _adapted
    assert violations(played(SuspendHolder, lull_s=60.0)) != []


def test_runner_whose_machine_slept_is_fenced_in_time_by_its_guard_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert violations(played(SuspendFrozenHolder)) == []
    monkeypatch.setattr(process, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    found = violations(played(SuspendFrozenHolder))
    assert any("its last confirmed heartbeat" in what for what in found)


def test_result_that_was_on_its_way_as_its_machine_fell_asleep_ends_no_job_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its supervisor may learn of it before anybody minds the deadline: the revision it expects is what refuses it."""
    worlds: list[SuspendAnsweringMachine] = []
    send = SimRunner._send

    def make_faults(world: World) -> SuspendAnsweringMachine:
        worlds.append(SuspendAnsweringMachine(world))
        return worlds[-1]

    def tell(self: SimRunner, answer: frames.Answer) -> None:
        send(self, answer)
        if isinstance(answer, frames.Ran):
            worlds[-1].on_ran(self.process.machine)

    monkeypatch.setattr(SimRunner, "_send", tell)
    outcomes = [
        play(
            seed,
            is_traced=True,
            make_faults=make_faults,
            shape=replace(draw(seed), workers=(1, 1), jobs=12, lull_s=40.0, is_calm=False),
        )
        for seed in range(4)
    ]
    assert violations(outcomes) == []
    stories = ["\n".join(outcome.trace) for outcome in outcomes]
    assert any("attempt=2" in story for story in stories)


@pytest.mark.parametrize("rules", [SHORT, LONG])
def test_record_outlives_its_holder_by_clocks_that_are_wrong_by_five_percent(rules: Rules) -> None:
    assert violations(played(DriftAndFreeze, rules=rules)) == []


@pytest.mark.parametrize("rules", [SHORT, LONG])
def test_clocks_beyond_the_margin_cost_the_record_its_lead_and_nobody_the_device(rules: Rules) -> None:
    found = violations(played(DriftFar, rules=rules))
    assert any("when its record lapsed" in what for what in found)
    assert [what for what in found if is_unsafe(what)] == []


def test_no_device_is_shared_and_tokens_grow_by_clocks_of_any_rate() -> None:
    found = violations([play(seed, shape=replace(draw(seed), rate_error=0.5, is_extreme=True)) for seed in range(8)])
    assert [what for what in found if is_unsafe(what)] == []


def test_clocks_are_drawn_up_to_the_bound_and_some_worlds_stand_at_it() -> None:
    shapes = [draw(seed) for seed in range(400)]
    assert {shape.rate_error for shape in shapes} == {0.01}
    assert 5 < sum(shape.is_extreme for shape in shapes) < 40


@pytest.mark.parametrize(
    ("state", "error"),
    [(State.EXPIRED, None), (State.FAILED, ErrorInfo(code="deadline_exceeded", message=NOBODY_LEFT))],
)
def test_job_that_expires_although_all_has_been_well_is_found_out(state: State, error: ErrorInfo | None) -> None:
    record = Record(
        id="j",
        model="m",
        version=1,
        signature="s",
        account_id="k",
        state=state,
        error=error,
        created_at=10.0,
        deadline_at=50.0,
    )
    entry, last = Entry("j", Task("j"), "", 10.0), checks.Stored(51.0, 1, record, b"")

    def found(served_by: float) -> list[str]:
        return list(checks.fate(entry, last, deadline_s=40.0, done=(), served_by=served_by))

    assert found(served_by=49.0) == []
    assert any("all had been well" in what for what in found(served_by=40.0))


def test_device_that_cannot_be_looked_at_is_left_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by a world: the error ended a task that nobody waited for, and the lease was kept for ever."""

    class Quiet(Faults):
        def plan(self) -> None:
            """Nothing else goes wrong."""

    look, looks = World.is_free, count()

    async def is_free(self: World, *args: object, **settings: object) -> bool:
        if next(looks) == 0:
            raise OSError(12, "no memory for a process that looks")
        return await look(self, *args, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(World, "is_free", is_free)
    shape = replace(draw(0), workers=(2,), kind="nvidia")
    found = play(0, make_faults=Quiet, shape=shape).violations
    # Who could not look leaves the device alone for a while, so others pass it in the line.
    assert [what for what in found if "overtaken" not in what] == []
    assert next(looks) > 1


def test_records_that_are_only_moved_cost_no_job_its_fate() -> None:
    """Seeds of worlds in which open records are written again as they are, by who runs them and by others."""
    seeds = [seed for seed in range(SEEDS) if draw(seed).is_moved]
    outcomes = [play(seed) for seed in seeds]
    assert [outcome.violations for outcome in outcomes] == [[]] * len(outcomes)
    assert sum(outcome.faults.get("move_record", 0) for outcome in outcomes) > len(seeds)


def test_a_deep_queue_waits_with_its_slots_and_loses_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds of worlds in which three messages are very many."""
    patient, waiting = 0, 0
    is_due = removal._Slot.is_due

    def seen(slot: Any, now: float, queue: Any) -> bool:
        nonlocal patient, waiting
        patient += queue.is_patient
        waiting += queue.is_patient and slot.most > 0
        return is_due(slot, now, queue)

    monkeypatch.setattr(removal._Slot, "is_due", seen)
    seeds = [seed for seed in range(2 * SEEDS) if draw(seed).is_deep]
    outcomes = [play(seed) for seed in seeds]
    assert [outcome.violations for outcome in outcomes] == [[]] * len(outcomes)
    assert patient > len(seeds)
    assert waiting > 0


def test_where_models_are_very_many_what_a_turn_brings_is_kept_together_and_none_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seeds of worlds in which one model is very many."""
    together = 0
    release = AwakeModel.release

    def seen(model: AwakeModel, priority: Priority) -> list[Received]:
        nonlocal together
        given = release(model, priority)
        together += len(given) > 1
        return given

    monkeypatch.setattr(AwakeModel, "release", seen)
    outcomes = [play(seed) for seed in range(SEEDS) if draw(seed).is_crowded]
    assert [outcome.violations for outcome in outcomes] == [[]] * len(outcomes)
    assert together > 0


def test_a_worker_writes_the_record_of_what_it_runs_for_long_again() -> None:
    worlds: list[World] = []

    def make_faults(world: World) -> Faults:
        worlds.append(world)
        return Undisturbed(world)

    for seed in range(2):
        shape = replace(draw(seed), is_moved=True)
        assert play(seed, make_faults=make_faults, shape=shape).violations == []
    histories = [stored for world in worlds for stored in world.oracle.records.values()]
    assert any(before.record == after.record for stored in histories for before, after in pairwise(stored))


def test_raised_job_is_not_run_again_by_the_message_that_it_was_raised_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by a world (594, with the clock measured thrice): that message came for the first time after the end."""
    worlds: list[World] = []
    runs: Counter[tuple[int, str]] = Counter()
    init, ran = Caller.__init__, Oracle.ran

    def make_faults(world: World) -> Faults:
        worlds.append(world)
        return Undisturbed(world)

    def waits_with_others(self: Caller, world: World, number: int) -> None:
        init(self, world, number)
        self.priority, self.cancels_after_s, self.deletes = "mid", None, False
        self.raises_after_s = 0.2 if number % 4 == 3 else None

    def count_run(self: Oracle, who: str, job_id: str) -> None:
        runs[self.world.shape.seed, job_id] += 1
        ran(self, who, job_id)

    monkeypatch.setattr(Caller, "__init__", waits_with_others)
    monkeypatch.setattr(Oracle, "ran", count_run)
    for seed in range(4):
        shape = replace(draw(seed), workers=(3,), jobs=30, is_calm=True)
        assert play(seed, make_faults=make_faults, shape=shape).violations == []
    raised = [
        (world.shape.seed, job_id)
        for world in worlds
        for job_id, stored in world.oracle.records.items()
        if stored[-1].record.priority == "hi"
    ]
    assert len(raised) > len(worlds)
    assert {runs[job] for job in raised} == {1}
