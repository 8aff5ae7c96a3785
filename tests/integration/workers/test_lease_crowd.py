"""Many workers before one device, on a real nats-server: who gets it, and what they all ask of the server."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from signalbox.bus.client import Bus, Message
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.events import is_removal
from signalbox.wire.messages import decode
from signalbox.wire.names import Bucket, Header
from signalbox.wire.workerdocs import Lease, Ticket
from tests.rigs.lightguard import Device
from tests.rigs.natsserver import NatsServer
from workers.device import devices
from workers.device.leased import LeasedDevice
from workers.device.settings import DeviceSettings
from workers.host.identity import WorkerIdentity

QUICK: dict[str, Any] = {
    "heartbeat_s": 0.5,
    "request_timeout_s": 1.0,
    "fence_s": 3.0,
    "kill_s": 1.0,
    "margin_s": 1.0,
    "failover_s": 0.0,
    "ttl_s": 5,
    "reserved_s": 2.0,
    "recheck_s": 2.0,
}


LEASES = names.key(Bucket.LEASES, "")


def is_try(lease: Lease) -> bool:
    """Whether a write is an attempt to get the device: it has no token yet, that is its own sequence."""
    return lease.state == "HELD" and not lease.token


class Member:
    """One worker that gives the device up when asked to, and when it asked NATS for what."""

    def __init__(self, name: str, bus: Bus, leased: LeasedDevice) -> None:
        self.name, self.bus, self.leased = name, bus, leased
        self.turns = 0
        self.writes: list[float] = []
        self.tries: list[float] = []
        write = bus.write

        async def noted(subject: str, data: bytes = b"", **more: Any) -> int:
            self.writes.append(time.monotonic())
            if subject.startswith(LEASES) and is_try(decode(Lease, data)):
                self.tries.append(time.monotonic())
            return await write(subject, data, **more)

        bus.write = noted  # type: ignore[method-assign]  # counts, and then does what it did

    @property
    def is_waiting(self) -> bool:
        return not self.leased.token and self.leased.waiting_since is not None

    async def follow(self, turned: Callable[[], None]) -> None:
        while True:
            lease = await self.leased.held()
            self.turns += 1
            self.leased.busy()
            turned()
            ends = [asyncio.ensure_future(e.wait()) for e in (lease.yield_asked, lease.ended)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
            await lease.release()


class Crowd:
    """Its members, and a way to wait for what they do."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self._turned = asyncio.Event()

    @property
    def turns(self) -> int:
        return sum(member.turns for member in self.members)

    async def until(self, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Looked at after each turn and four times a second."""
        async with asyncio.timeout(limit_s):
            while not condition():
                self._turned.clear()
                try:
                    async with asyncio.timeout(0.25):
                        await self._turned.wait()
                except TimeoutError:
                    continue

    def turned(self) -> None:
        self._turned.set()


@asynccontextmanager
async def crowd(url: str, folder: Path, size: int, **rules: float) -> AsyncIterator[Crowd]:
    made, device = Crowd(), Device()
    settings = DeviceSettings(lock_dir=folder / "locks", **(QUICK | rules))
    following: list[asyncio.Task[None]] = []
    try:
        for number in range(size):
            name = f"w{number}"
            bus = await Bus.connect(Wire(nats_url=url), role="worker", name=name)
            leased = LeasedDevice(
                bus,
                devices.virtual(0, settings.lock_dir),
                WorkerIdentity.of_this_process(name, settings.lock_dir),
                settings,
                start_guard=device.start_guard,
            )
            member = Member(name, bus, leased)
            made.members.append(member)
            await leased.start()
            leased.want(True)
            following.append(asyncio.create_task(member.follow(made.turned)))
        yield made
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        for member in made.members:
            await member.leased.close()
            await member.bus.close()


class Line:
    """The line before the device as the server tells it: how often each ticket was overtaken."""

    def __init__(self) -> None:
        self.waiting: dict[str, int] = {}
        self.overtaken: Counter[tuple[str, int]] = Counter()
        self.held: list[str] = []

    def on_ticket(self, message: Message) -> None:
        worker = names.untoken(message.subject.rpartition(".")[2])
        if is_removal(message.headers):
            self.waiting.pop(worker, None)
        else:
            number = decode(Ticket, message.data).number
            self.waiting[worker] = number or int(message.headers[Header.SEQUENCE])

    def on_lease(self, message: Message) -> None:
        if is_removal(message.headers):
            return
        lease = decode(Lease, message.data)
        if not is_try(lease):
            return
        self.held.append(lease.owner)
        mine = self.waiting.pop(lease.owner, None)
        for worker, number in self.waiting.items():
            if mine is None or number < mine:
                self.overtaken[worker, number] += 1


def jain(shares: list[int]) -> float:
    """1 where all have the same, 1/n where one has all (Jain, Chiu and Hawe, 1984)."""
    return float(sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)))


async def test_nobody_is_overtaken_twice_and_all_get_the_same_share(nats: NatsServer, bus: Bus, tmp_path: Path) -> None:
    line = Line()
    gpu = names.token(devices.virtual(0, tmp_path / "locks").id)
    await bus.subscribe(names.event_of_key(Bucket.LEASES, gpu), line.on_lease)
    await bus.subscribe(names.event_of_key(Bucket.WAITERS, f"{gpu}.*"), line.on_ticket)
    async with crowd(nats.url, tmp_path, 8, quantum_s=0.1) as made:
        await made.until(lambda: all(member.turns for member in made.members))
        begin = {member.name: member.turns for member in made.members}
        await made.until(lambda: made.turns >= sum(begin.values()) + 64)
        shares = [member.turns - begin[member.name] for member in made.members]
    assert len(line.held) >= 64
    assert max(line.overtaken.values(), default=0) <= 1
    assert jain(shares) >= 0.95, shares


async def test_a_crowd_comes_back_from_an_outage_without_a_storm(own_nats: NatsServer, tmp_path: Path) -> None:
    size = 50
    async with crowd(own_nats.url, tmp_path, size, quantum_s=60.0) as made:
        await made.until(lambda: sum(m.is_waiting for m in made.members) == size - 1)
        await own_nats.kill()
        await made.until(lambda: not any(m.leased.token for m in made.members))
        await asyncio.sleep(QUICK["ttl_s"])  # leases and tickets run out as well
        turns = made.turns
        await own_nats.restart()
        back = time.monotonic()
        await made.until(lambda: made.turns > turns)
        took_s = time.monotonic() - back
        await made.until(lambda: sum(m.is_waiting for m in made.members) == size - 1)
        await asyncio.sleep(2.0)
        rates = [busiest_second(member, back) for member in made.members]
        total = sum(at >= back for member in made.members for at in member.writes)
        spent_s = time.monotonic() - back
    print(f"holder after {took_s:.2f} s, {total} writes in {spent_s:.1f} s, most tries {max(rates)}")
    assert took_s <= 10.0
    assert max(rates) <= 2
    assert total <= size * (4 + 2 * spent_s)


def busiest_second(member: Member, since: float) -> int:
    """Most compare-and-sets of the lease that one worker tried within a second."""
    at = [t for t in member.tries if t >= since]
    return max((sum(t <= other < t + 1.0 for other in at) for t in at), default=0)
