"""A whole Signalbox in one thread and virtual time: NATS, hosts, workers, gateways, clients, and faults.

A world is drawn from its seed: how many workers on how many devices, which rules, what load, which faults
and when. :meth:`World.play` runs it to its end and returns what was seen.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.leader import LeaderLease
from signalbox.bus.table import put
from signalbox.program.settings import Wire
from signalbox.wire import jobids, names
from signalbox.wire.assets import STREAMS
from signalbox.wire.modeldocs import Batching, Limits, Model, Version
from signalbox.wire.names import Bucket
from verification.simulation.clients import Caller, Ledger
from verification.simulation.hosts import Gateway, Host, Worker
from verification.simulation.kernel import Machine, Process
from verification.simulation.loop import WORLD, Clock, Program, SimLoop
from verification.simulation.nats.bus import ModelBus
from verification.simulation.nats.link import Link
from verification.simulation.oracle import Oracle, SeenBus, SeenServer
from verification.simulation.runner import Device
from workers import supervisor
from workers.device import devices, leased
from workers.host.quarantine import Quarantine
from workers.lease.rules import Rules
from workers.queue import intake
from workers.recovery import queued, removal
from workers.recovery.reconciler import JobReconciler

if TYPE_CHECKING:
    from verification.simulation.faults import Faults

MODEL: Final = "half"
SHORT: Final = Rules(
    heartbeat_s=1.0,
    fence_s=4.5,
    kill_s=1.0,
    margin_s=0.5,
    failover_s=2.0,
    ttl_s=6,
    reserved_s=1.0,
    quantum_s=4.0,
)
"""The production rules nearly three times as fast: a world costs less, and the sums still hold."""
LONG: Final = Rules()
RATE_ERROR: Final = 0.01
"""By so much a clock may be too fast or too slow for all promises to hold."""
_EXTREME: Final = 0.05
_APART: Final = 0.2
_BRIEF: Final = 0.1
_MOVED: Final = 0.2
_DEEP: Final = 0.2
_CROWDED: Final = 0.2
_VERY_MANY: Final = 3
"""Messages in a deep queue."""
_CHECKS_EVERY_S: Final = 5.0
"""The reconciler of a world whose records are brief."""
_TRUSTED_S: Final = 10.0
"""With the fast rules, and in proportion with others."""
_FOUND_S: Final = 10.0
"""A job whose delivery was lost without a noise is noticed, and delivered again."""
_SLEEP_S: Final = 1.5
"""After so long without a job a model sleeps: often enough within a world."""
_PARKED_S: Final = 0.5
"""How long pull requests wait: one that is not answered is noticed, and a model learned of instead, within a world."""
_WORK_S: Final = 10.0
"""More than all jobs of a world take together."""


@dataclass(frozen=True)
class Shape:
    """What a world consists of. lull_s: until when the load and the faults last; then everything heals.

    is_apart: inputs lie in ``INPUTS``, which has little room, and a neighbour takes all there is of it now and then.
    is_brief: records of synchronous calls go while the world lasts, once no write of before the lull can be on its way.
    is_moved: records of open jobs are written again as they are, by workers every second and by anybody at any time.
    is_deep: three messages are very many, so that slots are longer, and wait until all in them has ended.
    is_crowded: one model is very many, so that its jobs are asked for in turns, and messages removed singly.
    is_calm: many workers want one device and only gateways suffer, so that the order of the line can be judged.
    rate_error: of every clock, at most; is_extreme: exactly so, one way or the other.
    """

    seed: int
    workers: tuple[int, ...]
    gateways: int
    jobs: int
    faults: int
    rules: Rules
    kind: str
    lull_s: float
    batch: int
    bound_s: float
    is_calm: bool = False
    rate_error: float = RATE_ERROR
    is_extreme: bool = False
    is_apart: bool = False
    is_brief: bool = False
    is_moved: bool = False
    is_deep: bool = False
    is_crowded: bool = False

    @property
    def kept_s(self) -> float:
        """How long records are kept at least; a worker writes those of what it runs again three times as often."""
        return 0.9 if self.is_moved else 600.0

    @property
    def sync_kept_s(self) -> float:
        """How long records of synchronous calls are kept."""
        return self.lull_s + 1.0 if self.is_brief else 600.0

    @property
    def trusted_s(self) -> float:
        """How long after its delivery a job without a record is believed not to have ended: no message is older."""
        return _TRUSTED_S * self.rules.ttl_s / SHORT.ttl_s

    @property
    def recovery_s(self) -> float:
        """After so long without a fault every lease and wait of before is over, what was lost found, the work done."""
        return self.rules.ttl_s + _FOUND_S + _WORK_S


def draw(seed: int) -> Shape:
    """The shape of world ``seed``."""
    is_extreme = random.Random(f"rates {seed}").random() < _EXTREME
    is_apart = random.Random(f"inputs {seed}").random() < _APART
    is_brief = random.Random(f"records {seed}").random() < _BRIEF
    is_moved = random.Random(f"moves {seed}").random() < _MOVED
    is_deep = random.Random(f"depth {seed}").random() < _DEEP
    is_crowded = random.Random(f"crowd {seed}").random() < _CROWDED
    return replace(
        _draw(seed),
        is_extreme=is_extreme,
        is_apart=is_apart,
        is_brief=is_brief,
        is_moved=is_moved,
        is_deep=is_deep,
        is_crowded=is_crowded,
    )


def _draw(seed: int) -> Shape:
    chance = random.Random(f"shape {seed}")
    if chance.random() < 0.1:
        return Shape(
            seed=seed,
            workers=(4,),
            gateways=2,
            jobs=24,
            faults=chance.randint(18, 30),
            rules=SHORT,
            kind="cpu",
            lull_s=18.0,
            batch=1,
            bound_s=120.0,
            is_calm=True,
        )
    is_long = chance.random() < 0.05
    workers = chance.choice([(2,), (2,), (3,), (2, 1), (1, 1), (2, 2), (4,)])
    return Shape(
        seed=seed,
        workers=workers,
        gateways=chance.choice([1, 2, 2]),
        jobs=chance.randint(8, 16),
        faults=chance.randint(18, 30),
        rules=LONG if is_long else SHORT,
        kind=chance.choice(["cpu", "cpu", "nvidia"]),
        lull_s=40.0 if is_long else 14.0,
        batch=chance.choice([1, 4, 32]),
        bound_s=240.0 if is_long else 120.0,
    )


@dataclass
class Outcome:
    """What a world has shown. faults: injected, by kind. inside: boots that used a device, one a stay."""

    seed: int
    faults: dict[str, int] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    callbacks: int = 0
    jobs: int = 0
    inside: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


class World:
    """See the module. Made inside the loop it runs on."""

    def __init__(
        self,
        loop: SimLoop,
        shape: Shape,
        *,
        is_traced: bool = False,
        make_faults: "Callable[[World], Faults] | None" = None,
    ) -> None:
        self.loop, self.shape = loop, shape
        self.make_faults = make_faults
        self.is_traced = is_traced
        self.is_over = False
        self.served_by = math.inf
        self.chance = random.Random(f"world {shape.seed}")
        self.outcome = Outcome(shape.seed)
        self.oracle = Oracle(self)
        self.ledger = Ledger(self)
        self.model = Model(
            name=MODEL,
            versions=(Version(version=1, path="/models/half/1", joined=("serving_default",)),),
            replicas=9,
            batching=Batching(max_size=shape.batch, max_delay_ms=5.0, rows_independent=True),
            limits=Limits(max_delivery=3, timeout_s=3.0, deadline_s=40.0),
        )
        self.nats_clock = self._clock()
        self.nats = Program("nats", self.nats_clock)
        self.machines: list[Machine] = []
        self.devices: list[Device] = []
        self.workers: list[Worker] = []
        self.gateways: list[Gateway] = []
        self.links: dict[str, Link] = {}
        self.server: SeenServer
        for number, size in enumerate(shape.workers):
            machine = self._machine(f"host{number}")
            device = Device(f"GPU-{number}")
            self.devices.append(device)
            self.workers += [Worker(self, machine, f"w{number}{letter}", device) for letter in "abcd"[:size]]
        for number in range(shape.gateways):
            self.gateways.append(Gateway(self, self._machine(f"edge{number}"), f"g{number}"))

    @property
    def hosts(self) -> list[Host]:
        """Every program that is kept running."""
        return [*self.workers, *self.gateways]

    # -- for those inside ----------------------------------------------------------------------------

    def note(self, event: str, **facts: object) -> None:
        """One line of the trace."""
        if self.is_traced:
            words = " ".join(f"{name}={value}" for name, value in facts.items())
            self.outcome.trace.append(f"{self.loop.now:10.4f} {event} {words}")

    def broke(self, what: str, error: BaseException | None = None) -> None:
        """A violation."""
        if self.is_over:
            return
        self.note("VIOLATION", what=what)
        self.outcome.violations.append(what)

    def injected(self, fault: str) -> None:
        """One fault more."""
        faults = self.outcome.faults
        faults[fault] = faults.get(fault, 0) + 1

    def later(self, delay_s: float, act: Callable[..., Any], *args: Any) -> None:
        """Have the world do something."""
        self.loop.post(WORLD, act, *args, delay=delay_s)

    async def connect(self, host: Host, process: Process, role: str) -> Bus:
        """A connection of one process; its end is the connection's."""
        settings = Wire(
            request_timeout_s=self.shape.rules.request_timeout_s,
            reconnect_wait_s=0.2,
            ping_interval_s=1.0,
            connect_timeout_s=5.0,
        )
        link = Link(self.server, rng=random.Random(f"{host.name} {host.starts} {self.shape.seed}"))
        self.oracle.inherit(host.name, self.links.get(host.name), link)
        self.links[host.name] = link
        process.last_words.append(link.die)
        bus = SeenBus(self.server, link, role=role, settings=settings)
        bus.owner, bus.oracle = host.name, self.oracle
        return await bus.open(host.name)

    async def is_free(self, device: Any, *, timeout_s: float, **_: Any) -> bool:
        """In place of NVML: whether the device's memory is free."""
        found = next(each for each in self.devices if each.id == device.id)
        until = asyncio.get_running_loop().time() + timeout_s
        while any(stay.left is None for stay in found.stays):
            if asyncio.get_running_loop().time() > until:
                return False
            await asyncio.sleep(0.05)
        return True

    # -- its life ------------------------------------------------------------------------------------

    async def play(self) -> Outcome:
        """From the first start to the last check."""
        self.loop.set_exception_handler(self._unforeseen)
        from verification.simulation.faults import Faults

        with patch.object(devices, "wait_until_free", self.is_free), _adapted(self.shape):
            await self.loop.spawn(self.nats, self._set_up())
            for host in self.hosts:
                self.later(self.chance.uniform(0, 2.0), host.start)
            faults = (self.make_faults or Faults)(self)
            faults.plan()
            clients = [Caller(self, number) for number in range(self.shape.jobs)]
            tasks = [asyncio.ensure_future(client.live()) for client in clients]
            await asyncio.sleep(self.shape.lull_s)
            faults.heal()
            self.note("healed")
            healed_at = max(self.loop.now, faults.naps.over_at)
            self.served_by = healed_at + self.shape.recovery_s
            while self.loop.now < healed_at + self.shape.bound_s:
                await asyncio.sleep(1.0)
                if self.loop.now > healed_at and all(task.done() for task in tasks) and self.oracle.is_quiet():
                    break
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0.1)
            ends_at = healed_at + self.shape.bound_s
            while not self.oracle.is_quiet() and self.loop.now < ends_at:  # noqa: ASYNC110  virtual time
                await asyncio.sleep(1.0)  # a job that was sent long ago has only just arrived
            self.oracle.judge()
            self.is_over = True
        self.outcome.inside = [stay.boot for device in self.devices for stay in device.stays]
        self.outcome.seconds = self.loop.now
        self.outcome.callbacks = self.loop.callbacks
        return self.outcome

    def _unforeseen(self, _: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.broke(f"{context['message']}: {error!r} in {context.get('task') or context.get('future')}")

    async def _set_up(self) -> None:
        self.server = SeenServer(
            clock=lambda: self.nats_clock.utc(self.loop.now), rng=random.Random(f"nats {self.shape.seed}")
        )
        self.server.oracle = self.oracle
        self.server.declare([topology.wanted(config, 1) for config in STREAMS])
        if self.shape.is_apart:
            from verification.simulation.faults import INPUTS_BYTES

            inputs = self.server.streams["INPUTS"]
            inputs.configure(inputs.config | {"max_bytes": INPUTS_BYTES})
        bus = await ModelBus(self.server, role="admin").open("setup")
        await put(bus, Bucket.MODELS, names.token(MODEL), self.model)
        await bus.close()

    def _clock(self) -> Clock:
        share = self.chance.uniform(-1, 1)
        if self.shape.is_extreme:
            share = math.copysign(1, share)
        return Clock(
            rate=1.0 + share * self.shape.rate_error,
            wall=self.chance.uniform(-0.5, 0.5),
            started=-self.chance.uniform(100, 100_000),
        )

    def _machine(self, name: str) -> Machine:
        machine = Machine(self.loop, name, str(self.shape.seed), self._clock())
        self.machines.append(machine)
        return machine


@contextmanager
def _adapted(shape: Shape) -> Iterator[None]:
    """What a simulation replaces beside clocks and chance: this machine's own facts, and costly formalities."""
    with ExitStack() as stack:
        for class_ in (JobReconciler, Quarantine, LeaderLease):
            # A clock that is a default argument was bound when its module was read, before there was a world.
            defaults = class_.__init__.__kwdefaults__
            stack.enter_context(patch.dict(defaults, clock=lambda: time.time()))  # noqa: PLW0108
        if shape.is_brief:
            often = {"period_s": _CHECKS_EVERY_S, "settled_s": _CHECKS_EVERY_S}
            stack.enter_context(patch.dict(JobReconciler.__init__.__kwdefaults__, often))
        if shape.is_deep:
            stack.enter_context(patch.multiple(removal, PART=1, SINGLY_PART=_VERY_MANY))
            stack.enter_context(patch.object(queued, "DEEP", _VERY_MANY))
            stack.enter_context(patch.object(jobids, "MANY_QUEUED", _VERY_MANY))
        if shape.is_crowded:
            stack.enter_context(patch.object(intake, "MANY_AWAKE", 0))
            stack.enter_context(patch.object(removal, "MANY_CONSUMERS", 0))
        stack.enter_context(patch.object(intake, "SLEEP_S", _SLEEP_S))
        stack.enter_context(patch.object(intake, "PARKED_S", _PARKED_S))
        stack.enter_context(patch.object(topology, "require", _trust))
        stack.enter_context(patch.object(supervisor, "_rss_bytes", lambda _: 40 << 20))
        stack.enter_context(patch.object(leased, "remote_kind", lambda _: ""))
        yield


async def _trust(_: Bus) -> None:
    """The topology is the declared one: every start of a worker would ask for all of it."""
