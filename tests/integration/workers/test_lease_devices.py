"""Lanes in processes of their own, with runners around a toy, on a real nats-server, killed and frozen."""

import asyncio
import json
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from signalbox.bus.client import Bus, Message
from signalbox.wire import messages, names, workerdocs
from signalbox.wire.names import Bucket
from tests.rigs.natsserver import NatsServer
from tests.rigs.processes import gone, is_alive
from verification.chaos.evidence import intervals
from workers.device import devices

QUICK: dict[str, float] = {
    "heartbeat_s": 0.5,
    "request_timeout_s": 0.5,
    "fence_s": 3.0,
    "kill_s": 1.0,
    "margin_s": 1.0,
    "failover_s": 0.0,
    "ttl_s": 5,
    "reserved_s": 1.0,
    "recheck_s": 1.0,
    "idle_s": 0.1,
    "quantum_s": 60.0,
}
LIMIT_S = 60.0
Fact = dict[str, Any]


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Worker:
    """One host of a device and the facts it prints."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process, self.log = process, log
        self.seen: list[Fact] = []

    @classmethod
    async def start(cls, facts: Fact, log: Path) -> "Worker":
        with log.open("a") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.rigs.devicehost",
                json.dumps(facts),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
            )
        return cls(process, log)

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n".encode())

    async def receive(self, event: str, limit_s: float = LIMIT_S) -> Fact:
        """The next fact of that kind."""
        assert self.process.stdout is not None
        what = "ended"
        try:
            async with asyncio.timeout(limit_s):
                while line := await self.process.stdout.readline():
                    fact: Fact = json.loads(line)
                    self.seen.append(fact)
                    if fact["event"] == event:
                        return fact
        except TimeoutError:
            what = f"{limit_s} s passed"
        reported = "\n".join(map(str, self.seen))
        raise AssertionError(f"{what} before {event}:\n{reported}\n{self.log.read_text()}")

    def kill(self, sig: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(sig)


Start = Callable[..., Awaitable[Worker]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "intervals"


@pytest.fixture
async def start(nats: NatsServer, tmp_path: Path, log: Path) -> AsyncIterator[Start]:
    workers: list[Worker] = []

    async def make(name: str, *, is_yielding: bool = False, **rules: float) -> Worker:
        facts = {
            "url": nats.url,
            "worker": name,
            "lock_dir": str(tmp_path / "locks"),
            "interval_log": str(log),
            "rules": QUICK | rules,
            "is_yielding": is_yielding,
        }
        workers.append(await Worker.start(facts, tmp_path / f"{name}.log"))
        return workers[-1]

    yield make
    for worker in workers:
        if worker.process.returncode is None:
            worker.kill()
        await worker.process.wait()
    assert intervals.violations(intervals.read(log)) == []


async def pair(start: Start, **rules: Any) -> tuple[Worker, Worker, Fact]:
    """A holder, a standby with its runner ready, and the fact of the hold."""
    holder = await start("w1", **rules)
    held = await holder.receive("held")
    standby = await start("w2", **rules)
    await standby.receive("ready")
    return holder, standby, held


async def until_free(bus: Bus, tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        while (await lease(bus, tmp_path)).state != "FREE":  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.05)


async def lease(bus: Bus, tmp_path: Path) -> workerdocs.Lease:
    gpu = devices.virtual(0, tmp_path / "locks").id
    stored = await bus.leader_get(Bucket.LEASES.stream, names.key(Bucket.LEASES, names.token(gpu)))
    assert stored is not None
    return messages.decode(workerdocs.Lease, stored.data)


async def test_killed_holder_is_replaced_at_once_and_leaves_no_process(start: Start) -> None:
    holder, standby, held = await pair(start)
    killed_at = now()
    holder.kill()
    taken = await standby.receive("held")
    assert taken["at"] - killed_at < 1.0  # the record would have lasted 5 s: this is proof of death
    assert taken["token"] > held["token"]
    assert not is_alive(held["runner"])
    standby.tell("half 3")
    assert (await standby.receive("answer"))["y"] == 3.5


async def test_frozen_holder_is_fenced_and_rejoins_as_standby(start: Start) -> None:
    holder, standby, held = await pair(start, is_yielding=True)
    frozen_at = now()
    holder.kill(signal.SIGSTOP)
    taken = await standby.receive("held")
    assert taken["at"] - frozen_at <= QUICK["fence_s"] + QUICK["kill_s"]
    assert not is_alive(held["runner"])
    holder.kill(signal.SIGCONT)
    assert (await holder.receive("lost"))["token"] == held["token"]
    standby.tell("half 1")
    assert (await standby.receive("answer"))["token"] == taken["token"]
    holder.tell("want")  # with a new runner it stands in the line like any other
    again = await holder.receive("held")
    assert again["token"] > taken["token"]


async def test_with_the_real_constants_a_frozen_holder_is_out_within_fifteen_seconds(start: Start) -> None:
    real = {
        "heartbeat_s": 2.0,
        "request_timeout_s": 1.0,
        "fence_s": 12.0,
        "kill_s": 3.0,
        "margin_s": 5.0,
        "failover_s": 9.0,
        "ttl_s": 20,
    }
    holder, standby, held = await pair(start, **real)
    frozen_at = now()
    holder.kill(signal.SIGSTOP)
    await gone(held["runner"], limit_s=15.0)
    assert now() - frozen_at >= real["fence_s"] - real["heartbeat_s"] * 1.1 - 1.0
    assert (await standby.receive("held"))["at"] - frozen_at <= 15.0


async def test_job_longer_than_the_ttl_runs_once_under_one_token(start: Start) -> None:
    holder, standby, held = await pair(start, is_yielding=True)
    holder.tell(f"run {QUICK['ttl_s'] + 1}")
    await holder.receive("started")  # an idle holder is asked to yield, and this one yields at once
    standby.tell("want")
    answer = await holder.receive("answer")
    assert answer["token"] == held["token"]
    assert answer["y"] == QUICK["ttl_s"] + 1
    assert (await holder.receive("released"))["token"] == held["token"]
    assert (await standby.receive("held"))["at"] >= answer["at"]


async def test_blocked_loop_costs_the_lease_and_nothing_else(start: Start) -> None:
    holder, standby, held = await pair(start)
    holder.tell("block 5")
    blocked_at = now()
    taken = await standby.receive("held")
    assert taken["at"] - blocked_at <= QUICK["fence_s"] + QUICK["kill_s"] + 0.5
    assert (await holder.receive("lost"))["token"] == held["token"]


async def test_frozen_guard_is_noticed_and_replaced(start: Start) -> None:
    holder = await start("w1")
    held = await holder.receive("held")
    frozen_at = now()
    os.kill(held["guard"], signal.SIGSTOP)
    lost = await holder.receive("lost")
    assert lost["at"] - frozen_at < 5.0
    again = await holder.receive("held")
    assert again["token"] > held["token"]
    assert again["guard"] != held["guard"]
    assert not is_alive(held["runner"])


async def test_frozen_guard_and_dead_supervisor_leave_no_runner(start: Start) -> None:
    holder, standby, held = await pair(start)
    os.kill(held["guard"], signal.SIGSTOP)
    holder.kill()
    await gone(held["runner"])
    os.kill(held["guard"], signal.SIGCONT)  # until then its flock is a fact, and nobody may enter
    assert (await standby.receive("held"))["token"] > held["token"]


async def test_crashed_runner_is_replaced_under_the_same_lease(start: Start) -> None:
    holder, standby, held = await pair(start)
    holder.tell("run 30")
    await holder.receive("started")
    os.kill(held["runner"], signal.SIGKILL)
    assert (await holder.receive("failed"))["code"] == "runner_crashed"
    holder.tell("restart")
    again = await holder.receive("restarted")
    assert again["token"] == held["token"]
    assert again["runner"] != held["runner"]
    holder.tell("half 2")
    assert (await holder.receive("answer"))["y"] == 3.0
    assert [fact["event"] for fact in standby.seen] == ["ready"]


async def test_release_names_the_first_ticket(start: Start, bus: Bus, tmp_path: Path) -> None:
    holder, standby, _ = await pair(start)
    third = await start("w3")
    await third.receive("ready")
    third.tell("want")
    await ticket_of("w3", bus, tmp_path)
    standby.tell("want")
    await ticket_of("w2", bus, tmp_path)
    holder.tell("release")
    await holder.receive("released")
    taken = await third.receive("held")
    assert (await lease(bus, tmp_path)).owner == "w3"
    third.tell("release")
    assert (await standby.receive("held"))["token"] > taken["token"]


async def test_waiter_learns_of_a_release_and_does_not_look_for_it(start: Start, bus: Bus, tmp_path: Path) -> None:
    """The quickest of several, so that only a wait that is always there is found."""
    one, other, _ = await pair(start, recheck_s=20.0)
    names_of = {one: "w1", other: "w2"}
    waits: list[float] = []
    for _ in range(5):
        other.tell("want")
        await ticket_of(names_of[other], bus, tmp_path)
        one.tell("release")
        released = await one.receive("released")
        waits.append((await other.receive("held"))["at"] - released["at"])
        one, other = other, one
    assert min(waits) < 0.5


async def test_reservation_of_a_dead_waiter_lapses(start: Start, bus: Bus, tmp_path: Path) -> None:
    holder, waiter, _ = await pair(start)
    waiter.tell("want")
    await ticket_of("w2", bus, tmp_path)
    waiter.kill()
    holder.tell("release")
    released = await holder.receive("released")
    again = await holder.receive("held")
    assert QUICK["reserved_s"] * 0.9 <= again["at"] - released["at"] < QUICK["reserved_s"] + 2.0


async def test_holder_yields_when_idle_and_somebody_waits(start: Start) -> None:
    holder, standby, held = await pair(start, is_yielding=True)
    standby.tell("want")
    await holder.receive("released")
    assert (await standby.receive("held"))["token"] > held["token"]


async def test_short_outage_of_nats_costs_nothing(own_nats: NatsServer, tmp_path: Path) -> None:
    facts = {"url": own_nats.url, "worker": "w1", "lock_dir": str(tmp_path / "locks"), "rules": QUICK}
    worker = await Worker.start(facts, tmp_path / "w1.log")
    held = await worker.receive("held")
    await own_nats.kill()
    await own_nats.restart()
    worker.tell("run 3.5")  # longer than the fence: only a renewed lease lets it end
    answer = await worker.receive("answer")
    assert answer["token"] == held["token"]
    worker.tell("close")
    await worker.receive("closed")
    assert await worker.process.wait() == 0


async def test_long_outage_of_nats_fences_the_runner(own_nats: NatsServer, tmp_path: Path) -> None:
    facts = {"url": own_nats.url, "worker": "w1", "lock_dir": str(tmp_path / "locks"), "rules": QUICK}
    worker = await Worker.start(facts, tmp_path / "w1.log")
    held = await worker.receive("held")
    stopped_at = now()
    await own_nats.kill()
    lost = await worker.receive("lost")
    assert lost["at"] - stopped_at <= QUICK["fence_s"] + QUICK["kill_s"]
    await own_nats.restart()
    again = await worker.receive("held")
    assert again["token"] > held["token"]
    worker.tell("close")
    await worker.receive("closed")
    await worker.process.wait()


async def ticket_of(worker: str, bus: Bus, tmp_path: Path) -> None:
    """Wait until ``worker`` stands in the line."""
    gpu = devices.virtual(0, tmp_path / "locks").id
    key = names.key(Bucket.WAITERS, names.ticket(gpu, worker))
    there = asyncio.Event()

    def receive(message: Message) -> None:
        if message.data:  # else it has left the line
            there.set()

    subject = names.event_of_key(Bucket.WAITERS, names.ticket(gpu, worker))
    subscription = await bus.subscribe(subject, receive)
    stored = await bus.leader_get(Bucket.WAITERS.stream, key)
    if stored is None or not stored.data:
        async with asyncio.timeout(LIMIT_S):
            await there.wait()
    await subscription.close()


async def test_device_whose_token_cannot_be_kept_is_given_back_until_it_can(
    start: Start, bus: Bus, tmp_path: Path
) -> None:
    """A full disk, made of the kernel's limit on what the guard may write."""
    holder = await start("w1", quarantine_s=1.0, is_yielding=True)
    held = await holder.receive("held")
    _, hard = resource.prlimit(held["guard"], resource.RLIMIT_FSIZE)
    resource.prlimit(held["guard"], resource.RLIMIT_FSIZE, (0, hard))
    holder.tell("release")
    await holder.receive("released")
    said = tmp_path / "w1.log"
    async with asyncio.timeout(LIMIT_S):
        while "gpu.unusable" not in said.read_text():  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.05)
    await until_free(bus, tmp_path)
    standby = await start("w2", is_yielding=True)
    other = await standby.receive("held")  # nobody is kept out by a worker that cannot come in
    resource.prlimit(held["guard"], resource.RLIMIT_FSIZE, (hard, hard))
    holder.tell("want")
    again = await holder.receive("held")
    assert again["token"] > other["token"] > held["token"]
