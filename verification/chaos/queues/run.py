"""A run: twenty consumers of three groups on five queues, items put all along, and one fault after another."""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import httpx
from msgspec.json import encode

from signalbox.program import tasks
from tests.rigs.outage import becomes
from tests.rigs.processes import stop
from verification.chaos.environment.proxy import CALM, CUT, Weather
from verification.chaos.queues.evidence import Evidence, Fault
from verification.chaos.queues.laws import LAWS
from verification.chaos.queues.site import GROUPS, QUEUES, Gateway, Site, site
from verification.chaos.queues.traffic import Consumer, Producer, now

ITEMS: Final = 5_000
PRODUCERS: Final = 8
WINDOWS: Final = ((5, 10, 20), (1, 2))
"""Of a group's first consumer, and of its second."""
DRAIN_S: Final = 180.0
"""After the last fault everything is committed within this: a dead gateway's items come back after twenty seconds."""
_LONG_S: Final = 25.0
"""Longer than NATS waits for a word of who has an item."""
_SHORT_S: Final = 4.0


class Run:
    """What strikes need. consumers: all twenty of them."""

    def __init__(self, made: Site, found: Evidence, consumers: Sequence[Consumer], seed: int) -> None:
        self.site = made
        self.found = found
        self.consumers = consumers
        self.rng = random.Random(seed)

    def gateway(self) -> Gateway:
        """Any of them."""
        return self.rng.choice(self.site.gateways)


Strike = Callable[[Run], Awaitable[None]]


async def kill_gateway(run: Run) -> None:
    """SIGKILL to a gateway, which is started again."""
    gateway = run.gateway()
    await gateway.kill()
    await asyncio.sleep(1.0)
    await gateway.start()


async def kill_nats(run: Run) -> None:
    """SIGKILL to NATS, which is started again."""
    await run.site.nats.kill()
    await run.site.nats.start()


async def freeze_gateway(run: Run, for_s: float) -> None:
    """SIGSTOP to a gateway, which goes on later."""
    await _frozen(run.gateway().pid, for_s)


async def freeze_nats(run: Run) -> None:
    """SIGSTOP to NATS, which goes on later."""
    await _frozen(run.site.nats.pid, _SHORT_S)


async def change_weather(run: Run, weather: Weather, for_s: float) -> None:
    """Between a gateway and NATS nothing passes, or new connections are refused."""
    proxy = run.gateway().proxy
    proxy.change(weather)
    if weather.is_refusing:
        proxy.reset()
    await asyncio.sleep(for_s)
    proxy.change(CALM)
    proxy.reset_deaf()


async def reset(run: Run) -> None:
    """RST to a gateway's connections to NATS."""
    run.gateway().proxy.reset()


async def strand(run: Run) -> None:
    """A gateway's connections to NATS lead nowhere from now on, without an error."""
    stranded = run.gateway().proxy.strand()
    await asyncio.sleep(_SHORT_S)
    stranded.drop()


async def abort_consumers(run: Run) -> None:
    """Half of the consumers are gone without a word, and come back."""
    for consumer in run.rng.sample(list(run.consumers), len(run.consumers) // 2):
        consumer.abort()


async def pause_consumers(run: Run) -> None:
    """Half of the consumers take long."""
    paused = run.rng.sample(list(run.consumers), len(run.consumers) // 2)
    for consumer in paused:
        consumer.is_paused.clear()
    await asyncio.sleep(_SHORT_S)
    for consumer in paused:
        consumer.is_paused.set()


async def leave(run: Run) -> None:
    """Some consumers say that they leave."""
    for consumer in run.rng.sample(list(run.consumers), len(run.consumers) // 4):
        await consumer.leave()


class Kind(NamedTuple):
    """A fault, and how long it takes about."""

    strike: Strike
    for_s: float


FAULTS: Final[dict[str, Kind]] = {
    "kill gateway": Kind(kill_gateway, _SHORT_S),
    "kill nats": Kind(kill_nats, 1.0),
    "freeze gateway": Kind(partial(freeze_gateway, for_s=_SHORT_S), _SHORT_S),
    "freeze gateway for long": Kind(partial(freeze_gateway, for_s=_LONG_S), _LONG_S),
    "freeze nats": Kind(freeze_nats, _SHORT_S),
    "cut": Kind(partial(change_weather, weather=CUT, for_s=_SHORT_S), _SHORT_S),
    "cut for long": Kind(partial(change_weather, weather=CUT, for_s=_LONG_S), _LONG_S),
    "refuse": Kind(partial(change_weather, weather=Weather(is_refusing=True), for_s=_SHORT_S), _SHORT_S),
    "reset": Kind(reset, 1.0),
    "half open": Kind(strand, _SHORT_S),
    "abort consumers": Kind(abort_consumers, 1.0),
    "pause consumers": Kind(pause_consumers, _SHORT_S),
    "leave": Kind(leave, 1.0),
}


async def run(folder: Path, items: int, seed: int) -> Evidence:
    """One run in ``folder``, each fault once for each :data:`ITEMS` items, in an order that the seed chooses."""
    found = Evidence()
    rng = random.Random(seed)
    rounds = max(1, items // ITEMS)
    kinds = [kind for _ in range(rounds) for kind in rng.sample(list(FAULTS), len(FAULTS))]
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=100)
    async with site(folder) as made, httpx.AsyncClient(limits=limits, trust_env=False) as client:
        consumers = [
            Consumer(made, client, found, queue, group, f"{group}-{number}", rng.choice(windows))
            for queue in QUEUES
            for group in GROUPS
            for number, windows in enumerate(WINDOWS if group == GROUPS[0] else WINDOWS[:1])
        ]
        numbers = iter(range(items))
        share = items // (len(kinds) + 2)
        async with _running(consumers):
            traffic = partial(_put, made, client, found, rng)
            await traffic(list(islice(numbers, share)), 0.0)
            await _drained(made, found)
            found.quiet_until = now()
            going = Run(made, found, consumers, seed)
            for kind in kinds:
                async with tasks.TaskGroup() as group:
                    over_s = FAULTS[kind].for_s + _SHORT_S
                    group.create_task(traffic(list(islice(numbers, share // 2)), 0.0))
                    group.create_task(traffic(list(islice(numbers, share - share // 2)), over_s))
                    await asyncio.sleep(rng.uniform(0.5, 2.0))
                    await _strike(going, kind)
            await traffic(list(numbers), 0.0)
            await _drained(made, found)
    seen = {"receipts": found.receipts, "commits": found.commits, "faults": found.faults}
    (folder / "evidence.json").write_bytes(encode(seen))
    return found


def judge(found: Evidence) -> list[str]:
    """What broke a law, in words."""
    return [f"{law}: {text}" for law, look in LAWS.items() for text in look(found)]


def report(found: Evidence) -> str:
    """What happened, for people."""
    times = Counter((one.queue, one.group, one.index) for one in found.receipts)
    kinds = Counter(fault.kind for fault in found.faults)
    return "\n".join(
        [
            f"{len(found.put)} items put, {len(found.perhaps)} of them with an answer that left it open",
            f"{len(found.receipts)} given out, {len(found.receipts) - len(times)} of them again",
            f"{sum(len(commit.indexes) for commit in found.commits)} committed, {len(found.conflicts)} refused",
            f"faults: {dict(sorted(kinds.items()))}",
            f"answers: {dict(sorted(found.answers.items()))}",
            f"ends of websockets: {dict(sorted(found.closes.items()))}",
        ]
    )


async def _strike(run: Run, kind: str) -> None:
    began = now()
    await FAULTS[kind].strike(run)
    run.found.faults.append(Fault(kind, began, now()))
    print(f"{kind}: {now() - began:.1f} s", file=sys.stderr, flush=True)


async def _put(
    made: Site, client: httpx.AsyncClient, found: Evidence, rng: random.Random, numbers: Sequence[int], over_s: float
) -> None:
    """Put numbers, spread over about so many seconds."""
    left = iter(numbers)
    pace_s = over_s * PRODUCERS / max(1, len(numbers))

    async def work(seed: float) -> None:
        producer = Producer(made, client, found, seed)
        for number in left:
            await producer.put(number)
            await asyncio.sleep(pace_s)

    async with tasks.TaskGroup() as group:
        for _ in range(PRODUCERS):
            group.create_task(work(rng.random()))


async def _drained(made: Site, found: Evidence) -> None:
    async def is_empty() -> bool:
        return not await made.left()

    try:
        await becomes(is_empty, limit_s=DRAIN_S)
    except AssertionError:
        found.findings.append(f"{await made.left()} not committed {DRAIN_S:g} s after the last fault")
    stored = await made.stored()
    if stored:
        found.findings.append(f"{stored} items are stored that every group has committed")


async def _frozen(pid: int, for_s: float) -> None:
    await stop(pid)
    try:
        await asyncio.sleep(for_s)
    finally:
        os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def _running(consumers: Sequence[Consumer]) -> AsyncIterator[None]:
    running = [asyncio.create_task(consumer.run(), name=consumer.uid) for consumer in consumers]
    try:
        yield
    finally:
        await tasks.end(running)
