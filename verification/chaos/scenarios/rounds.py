"""Faults of single scenarios: they need a load, or something that a storm leaves alone."""

import asyncio
import itertools
import random
import signal
import time
from collections import Counter
from typing import Final

from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from signalbox.bus import table
from signalbox.ops.httppool import ConnectionPool
from signalbox.ops.ports import HOST
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import decode
from signalbox.wire.names import Bucket, key
from tests.rigs.outage import becomes
from tests.rigs.processes import is_alive
from verification.chaos.environment.proxy import CUT, Weather
from verification.chaos.evidence.history import ENDED
from verification.chaos.evidence.journal import now
from verification.chaos.faults.fault import WIDE_S, a_holder, measured, struck
from verification.chaos.rig.rig import Rig
from verification.chaos.scenarios.scene import beats, more_accepted, refused
from verification.chaos.traffic.account import Account

RUN_S: Final = 2.0
BRIEF_S: Final = 1.5
"""Less than a cancelled run is left to end by itself (``cancel_grace_s``)."""
ENDLESS_S: Final = 600.0
"""As good as: such a run ends with its runner."""
LATEST_S: Final = 1.0
"""A run is interrupted at any moment up to this."""
AWAY_S: Final = 20.0
PROBE_S: Final = 0.5
LOSSY_S: Final = 60.0
LATE_S: Final = 0.1
"""Each way."""


async def restart(made: Rig, rng: random.Random) -> None:
    """SIGKILL to the supervisor whose runner is at a job, until that job runs again."""
    await a_holder(made)
    job = await made.load.run(made.load.accounts[0], RUN_S)
    await _is_running(made, job, 1)
    await asyncio.sleep(rng.uniform(0, LATEST_S))
    name = made.holder()
    async with struck(made, "kill supervisor", name):
        began = now()
        made.signal(made.child(name).pid, signal.SIGKILL)
        await _is_running(made, job, 2)
        measured(made, "restart", name, "SIGKILL to running again", now() - began, WIDE_S)
    made.background(made.bring_back(name))
    await _has_ended(made, job)


async def cancel(made: Rig, rng: random.Random, run_s: float) -> None:
    """Cancellation of a running job until its record has ended."""
    ann = made.load.accounts[0]
    job = await made.load.run(ann, run_s)
    await _is_running(made, job, 1)
    await asyncio.sleep(rng.uniform(0, LATEST_S))
    began = now()
    status = await made.load.withdraw(ann, job)
    await _has_ended(made, job)
    what = f"cancellation to the end of a run that {'ends' if run_s == BRIEF_S else 'does not'}"
    measured(made, "cancel", made.holder(), what, now() - began, WIDE_S)
    if (status, made.recorder.states[job]) != (202, "cancelled"):
        made.finding(f"the answer was {status} and {job} {made.recorder.states[job]}")


async def _is_running(made: Rig, job: str, attempt: int) -> None:
    seen = made.recorder
    await made.until(
        lambda: seen.states.get(job) == "running" and seen.attempts[job] == attempt, what=f"attempt {attempt} of {job}"
    )


async def _has_ended(made: Rig, job: str) -> None:
    await made.until(lambda: made.recorder.states.get(job) in ENDED, what=f"the end of {job}")


async def majority(made: Rig, rng: random.Random) -> None:
    """Two nodes of three are killed, away for a while and started again: no job can be accepted meanwhile."""
    lost = rng.sample(made.nodes, 2)
    runners = {name: made.runner_of(name) for name in made.workers}
    async with struck(made, "majority", "all", nodes=[node.name for node in lost]):
        began = now()
        await asyncio.gather(*(node.kill() for node in lost))

        async def dies(name: str, runner: int) -> None:
            await made.until(lambda: not is_alive(runner), what=f"the end of {name}'s runner")
            measured(made, "majority", name, "majority killed to runner dead", now() - began, WIDE_S)

        async def asks() -> None:
            reported = Counter[int]()
            while now() - began < AWAY_S:
                reported[await made.load.probe(made.load.accounts[0])] += 1
                await asyncio.sleep(PROBE_S)
            print(f"told in {AWAY_S:g} s without a majority: {dict(reported)}")
            if reported.keys() - {503}:
                made.finding(f"not only 503 without a majority: {dict(reported)}")

        async with asyncio.TaskGroup() as group:
            for name, runner in runners.items():
                group.create_task(dies(name, runner))
            group.create_task(asks())
        began = now()
        await asyncio.gather(*(made.start_node(node) for node in lost))
        await made.nats_serves()
        await more_accepted(made, 6)
        measured(made, "majority", "nats", "restart to accepted jobs", now() - began, WIDE_S)
        await made.refresh()
        await made.until(made.is_settled, limit_s=120, what="both runners inside")
        measured(made, "majority", "nats", "restart to both runners inside", now() - began, WIDE_S)


async def disk_full(made: Rig, rng: random.Random) -> None:
    """NATS' disk is full: callers get 503, and when there is room again nothing accepted is missing."""
    assert made.disk is not None
    async with struck(made, "disk full", "all"):
        was = refused(made.load)
        made.disk.fill()
        await made.until(lambda: refused(made.load) > was + 20, what="refusals")
        made.disk.free()
        # JetStream takes no more writes after ENOSPC until it is started again (docs/operations.md).
        began = now()
        await made.nodes[0].kill()
        await made.start_node(made.nodes[0])
        await made.nats_serves()
        await more_accepted(made, 1)
        measured(made, "disk", "nats", "restart to accepted jobs", now() - began, WIDE_S)


async def lossy(made: Rig, rng: random.Random) -> None:
    """For a minute three packets in ten from a worker are lost, and all that it says and is told is late."""
    ((name, space),) = made.namespaces.items()
    async with struck(made, "packets lost", name):
        began = now()
        space.drop(outgoing="30")
        made.weather(name, Weather(delay_s=LATE_S))
        try:
            await asyncio.sleep(LOSSY_S)
        finally:
            space.heal()
            made.weather(name, Weather())
        times = [began, *(beat["at"] for beat in beats(made, name, began, now())), now()]
        for before, after in itertools.pairwise(times):
            measured(made, "halfloss", name, "from beat to beat", after - before, WIDE_S)


async def revoke(made: Rig, rng: random.Random, *, is_cut_off: bool) -> None:
    """A key is revoked in KV, as the console's outbox does it, until its caller is refused."""
    text = await made.add_key(name=f"r{rng.randrange(10**9)}")
    account = Account("r", made.front_url, text, made.faults)

    async def status() -> int:
        got = await account.call("GET", "/v1/models")
        return got.status if got is not None else 0

    async def is_let_in() -> bool:
        return await status() == 200

    await becomes(is_let_in, limit_s=60)
    id_ = text.split("_")[2]
    stored = await made.bus.leader_get(Bucket.KEYS.stream, key(Bucket.KEYS, id_))
    assert stored is not None
    if is_cut_off:
        made.weather("gateway", CUT)
    began = now()
    await table.put(made.bus, Bucket.KEYS, id_, replace(decode(ApiKey, stored.data), revoked_at=time.time()))
    try:
        while await status() == 200:
            assert now() - began < WIDE_S, "a revoked key is let in for ever"
            if is_cut_off:
                await asyncio.sleep(0.02)
        last = await status()
        what = "cut off: revoked to first refusal" if is_cut_off else "revoked to first 401"
        measured(made, "revoke", "gateway", what, now() - began, WIDE_S)
        if last != (503 if is_cut_off else 401):
            made.finding(f"a revoked key got {last}")
    finally:
        made.weather("gateway", Weather())
        if is_cut_off:
            for proxy in made.proxies["gateway"]:
                proxy.reset()

    async def is_refused() -> bool:
        found = await status()
        if found == 200:
            made.finding("a revoked key was let in again after the front was reconnected")
        return found == 401

    await becomes(is_refused, limit_s=60)
    await account.pool.close()


async def lags(made: Rig) -> None:
    """Measure of every program the bound below which 99 of 100 of its loop's beats came. None may have ended."""
    for name in made.ended:
        made.finding(f"{name} did not live through it")
    for name, port in made.metrics_ports.items():
        pool = ConnectionPool(f"http://{HOST}:{port}", size=1, timeout_s=10.0)
        text = (await pool.request("GET", "/metrics", b"", {})).body.decode()
        await pool.close()
        below = {
            float(sample.labels["le"]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "signalbox_loop_lag_seconds_bucket"
        }
        lag_s = next(bound for bound, count in sorted(below.items()) if count >= 0.99 * below[float("inf")])
        measured(made, "soak", name, "loop lag, p99", lag_s, 1.0)
