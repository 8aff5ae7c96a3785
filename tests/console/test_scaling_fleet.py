"""The whole loop in virtual time: what waits, what the controller wants of it, and what each host makes of that.

The controller's scaler decides each second; hosts know what it last wrote and one another. A worker takes
``START_S`` to be ready; a device does a job in ``RUN_S``.
"""

import random
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.scale.series import Series
from console.board.capacity import Devices
from console.scaling.rules import Load
from console.scaling.scaler import Scaler
from signalbox.wire.hosts import first_start, is_overruled, kept_devices
from signalbox.wire.scaling import Host, HostDevice, Scale, Scaling
from signalbox.wire.workerdocs import Device

STEP_S = 0.1
START_S = 6.0
RUN_S = 0.4
CLASS = "cpu"
MODEL = "digits"
RECORDED = Path(__file__).with_name("recorded_arrivals.txt")
QUICK = Scaling(is_on=True, min=0, max=4, backlog=10.0, up_window_s=0.0, down_window_s=10.0, zero_grace_s=10.0)


class Agent:
    """A host's agent, as far as the pure functions go. workers: device -> when it is ready."""

    def __init__(self, name: str, devices: int) -> None:
        ids = [f"{name}-{number}" for number in range(devices)]
        self.doc = Host(
            id=name,
            host=name,
            devices=tuple(HostDevice(device=Device(id=i, kind="cpu", name=CLASS), class_=CLASS) for i in ids),
        )
        self.workers: dict[str, float] = {}
        self.first: str = ""
        self._alone_since: float | None = None

    def turn(self, now: float, scale: Scale | None, hosts: list[Host], *, has_work: bool, has_workers: bool) -> None:
        """Start and end workers."""
        kept = set(kept_devices(scale, hosts)) & {each.device.id for each in self.doc.devices}
        if self.first and is_overruled(self.workers.get(self.first, now), scale):
            self.first = ""
        self._alone_since = (self._alone_since or now) if has_work and not has_workers else None
        start = first_start(self.doc.id, hosts, scale)
        if self._alone_since is not None and start is not None and now - self._alone_since >= start.after_s:
            self.first = start.device
        kept |= {self.first} - {""}
        self.workers = {device: self.workers.get(device, now + START_S) for device in kept}


class Fleet:
    """The queue of one model, the controller and the agents. wanted, actual: devices of the class over time."""

    def __init__(self, agents: Iterable[Agent], scaling: Scaling = QUICK) -> None:
        self.agents = list(agents)
        self.scaling = scaling
        self.now = 1_000.0
        self.scale = Scale(at=0.0, classes={})
        self.has_controller = True
        self.queue: deque[float] = deque()
        self.waits_s: list[float] = []
        self.wanted, self.actual = Series(), Series()
        self._busy: dict[str, float] = {}
        self._called_at: float | None = None
        self._replicas = 1
        self._scaler = Scaler(self.scale, self.now)

    def run(self, seconds: float, arrivals: Iterable[float] = ()) -> None:
        """Let time pass. arrivals: seconds from now at which a job comes, in order."""
        began, due = self.now, deque(arrivals)
        while self.now < began + seconds:
            while due and began + due[0] <= self.now:
                self.queue.append(began + due.popleft())
            if self.has_controller and round(self.now / STEP_S) % round(1 / STEP_S) == 0:
                self._control()
            self._host()
            self._serve()
            self.now += STEP_S

    def _control(self) -> None:
        now = self.now
        running = sum(until > now for until in self._busy.values())
        if self.queue or running:
            self._called_at = now
        oldest_s = now - self.queue[0] if self.queue else 0.0
        load = Load(len(self.queue), running, oldest_s, RUN_S, devices=self._replicas, called_at=self._called_at)
        there = {CLASS: sum(len(agent.doc.devices) for agent in self.agents)}
        actual = {CLASS: sum(len(agent.workers) for agent in self.agents)}
        found = self._scaler.decide(
            now, {MODEL: self.scaling}, {MODEL: self._replicas}, {MODEL: load}, Devices({CLASS: 0}, there, actual)
        )
        self._replicas = found.replicas.get(MODEL, self._replicas)
        self.scale = replace(found.scale, at=now)
        self.wanted.note(now, found.scale.classes[CLASS].wanted)

    def _host(self) -> None:
        hosts = [agent.doc for agent in self.agents]
        has_workers = any(agent.workers for agent in self.agents)
        for agent in self.agents:
            agent.turn(self.now, self.scale, hosts, has_work=bool(self.queue), has_workers=has_workers)
        self.actual.note(self.now, len(self.ready))

    @property
    def ready(self) -> list[str]:
        """Devices whose workers are."""
        return [d for agent in self.agents for d, ready_at in agent.workers.items() if ready_at <= self.now]

    def _serve(self) -> None:
        """A job that runs when its worker is taken away ends first: workers drain."""
        for device in self.ready:
            while self.queue and self._busy.get(device, 0.0) <= self.now:
                self.waits_s.append(self.now - self.queue.popleft())
                self._busy[device] = self.now + RUN_S


def fleet(hosts: int = 2, devices: int = 2) -> Fleet:
    return Fleet(Agent(f"h{number}", devices) for number in range(hosts))


def flaps(made: Fleet) -> int:
    windows = {"up_s": made.scaling.up_window_s, "down_s": made.scaling.down_window_s}
    return len(made.wanted.reversals(**windows)) + len(made.actual.reversals(**windows))


def test_from_no_worker_to_200_jobs_and_back_to_none() -> None:
    made = fleet()
    made.run(30.0)
    assert (made.actual.most, made.wanted.most) == (0, 0)
    made.run(120.0, [0.05] * 200)
    assert len(made.waits_s) == 200
    assert made.waits_s[0] <= 1.5 * START_S
    assert made.wanted.most == made.actual.most == 4
    assert (made.wanted.now, made.actual.now) == (0, 0)
    assert flaps(made) == 0


def test_of_several_hosts_one_starts_the_first_worker() -> None:
    made = fleet(hosts=5, devices=4)
    made.run(20.0, [0.05])
    assert made.actual.most == 1
    assert made.waits_s == [pytest.approx(START_S, abs=2 * STEP_S)]


def test_without_the_controller_the_first_job_brings_a_worker_and_the_last_number_stays() -> None:
    made = fleet()
    made.run(5.0)
    made.has_controller = False
    made.run(60.0, [0.05, 30.0])
    assert len(made.waits_s) == 2
    assert (made.actual.most, made.actual.now) == (1, 1)
    made = fleet()
    made.run(15.0, [0.05] * 200)
    made.has_controller = False
    made.run(100.0)
    assert (len(made.waits_s), made.actual.now) == (200, 4)


def test_a_host_that_is_lost_is_made_up_for_and_takes_its_part_again() -> None:
    made = fleet(hosts=3, devices=2)
    made.scaling = Scaling(is_on=True, min=2, max=4, down_window_s=10.0)
    made.run(30.0, [0.05])
    before = set(made.ready)
    assert len(before) == 2
    lost = next(agent for agent in made.agents if set(agent.workers) & before)
    made.agents.remove(lost)
    made.run(START_S + 1.0)
    after = set(made.ready)
    assert (len(after), len(after & before)) == (2, 1)
    lost.workers.clear()
    made.agents.append(lost)
    made.run(START_S + 1.0)
    assert set(made.ready) == before


@pytest.mark.parametrize("seed", range(10))
def test_whatever_comes_no_job_is_left_and_nothing_is_taken_back_within_its_window(seed: int) -> None:
    chance = random.Random(seed)
    made = fleet(hosts=chance.randint(1, 4), devices=chance.randint(1, 4))
    arrivals = sorted(chance.uniform(0, 10) + burst * chance.uniform(20, 60) for burst in range(4) for _ in range(60))
    made.run(400.0, arrivals)
    assert len(made.waits_s) == len(arrivals)
    assert (made.wanted.now, made.actual.now) == (0, 0)
    assert not made.wanted.reversals(up_s=made.scaling.up_window_s, down_s=made.scaling.down_window_s)


def recorded() -> list[float]:
    """When each request of a recorded hour came, in seconds: those of a second evenly over it."""
    minutes = [line for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
    counts = [int(count) for minute in minutes for count in minute.split()]
    return [second + number / count for second, count in enumerate(counts) for number in range(count)]


@pytest.mark.parametrize(
    ("scaling", "times_at_zero"),
    [
        pytest.param(QUICK, 32, id="quick"),
        pytest.param(Scaling(is_on=True, min=0, max=4, backlog=10.0), 1, id="defaults"),
    ],
)
def test_of_a_recorded_hour_all_is_done_and_nothing_is_taken_back_within_its_window(
    scaling: Scaling, times_at_zero: int
) -> None:
    made = fleet()
    made.scaling = scaling
    arrivals = recorded()
    assert (len(arrivals), int(arrivals[-1])) == (8819, 3435)
    made.run(arrivals[-1] + scaling.zero_grace_s + 60.0, arrivals)
    assert len(made.waits_s) == len(arrivals)
    assert (made.wanted.most, made.wanted.now, made.actual.now) == (4, 0, 0)
    assert not made.wanted.reversals(up_s=scaling.up_window_s, down_s=scaling.down_window_s)
    assert sum(change.after == 0 for change in made.wanted.changes()) == times_at_zero
