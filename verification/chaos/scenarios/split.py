"""The scenario in which one node of three, with a worker and a front that reach no other, is cut off from the rest."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from signalbox.ops import probes
from signalbox.ops.ports import HOST, free_port
from signalbox.program.errors import SignalboxError
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from tests.rigs.processes import is_alive
from verification.chaos.evidence.journal import Entry, now
from verification.chaos.faults.fault import measured, struck
from verification.chaos.rig.rig import Rig, rig
from verification.chaos.scenarios.outages import FENCE_S, LEADERS, PROBE_S, SERVING_BOUND_S
from verification.chaos.scenarios.scene import fences, finished, loaded, longest_silence, more_accepted, say, settled
from verification.chaos.traffic.account import Account
from verification.chaos.traffic.load import Load

FRONT: Final = "gateway-2"
DEVICES: Final = ("cpu:0", "cpu:1")
SHARING: Final = ("worker-1", "worker-3")
"""Workers of one device, of whom the holder is cut off. The other device's only worker goes on."""
PATIENT: Final = {"worker": {"SIGNALBOX_WORKER_QUANTUM_S": "600"}}
"""Or the quantum would end some sessions before the fence does."""
HELD_S: Final = 22.0
"""From the cut to another holder: promised."""
AWAY_S: Final = (20.0, 45.0)
"""Before and after nodes give each other up, which takes some 30 s."""


async def split(folder: Path, rounds: int, seed: int) -> None:
    """By turns a node that leads nothing that decisions rest on, and one that leads all of it."""
    rng = random.Random(seed)
    async with rig(
        folder, workers=3, nodes=3, engine="toy", devices=DEVICES, programs=PATIENT, has_routes=True
    ) as made:
        url = await _second_front(made)
        load, ledger = await loaded(made, seed)
        ann = load.accounts[0]
        far = Account(ann.name, url, ann.key, ledger, callers=1)
        for number in range(rounds):
            await becomes(made.is_replicated, limit_s=180)
            leader, node = rng.sample(made.nodes, 2)
            if number % 2:
                node = leader
            await _elect(made, leader)
            await _round(made, load, far, node, rng, is_leader=node is leader)
            say(number, rounds)
        await far.pool.close()
        await finished(made, load, ledger)
        await settled(made)


async def _second_front(made: Rig) -> str:
    """Where it is called."""
    port = free_port()
    url = f"http://{HOST}:{port}"
    env = {**made.env("gateway"), "SIGNALBOX_GATEWAY_LISTEN": "", "SIGNALBOX_GATEWAY_EDGE_LISTEN": f"{HOST}:{port}"}
    await made.start(made.spec(FRONT, "gateway_plugin", env=env, ready=partial(probes.http, url, "/hello")))
    return url


async def _elect(made: Rig, node: NatsServer) -> None:
    """Have it lead leases, records and the queue."""
    ask = {"placement": {"preferred": node.name}}

    async def leads_all() -> bool:
        streams = [stream for stream in LEADERS if await made.leader_of(stream) is not node]
        for stream in streams:
            with suppress(SignalboxError):
                await made.bus.request_json(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", ask)
        return not streams

    await becomes(leads_all, limit_s=60)


async def _round(made: Rig, load: Load, far: Account, node: NatsServer, rng: random.Random, *, is_leader: bool) -> None:
    victim = await _sides(made, node)
    await more_accepted(made, load, 50)
    await becomes(made.is_replicated, limit_s=60)
    await made.until(
        lambda: _held(made).get("owner") == victim and made.are_inside(), limit_s=120, what=f"{victim} inside"
    )
    before = {name: len(fences(made, name)) for name in made.workers}
    away_s, is_late = rng.choice(AWAY_S), rng.random() < 0.5
    async with struck(made, "split", "all", node=node.name, is_leader=is_leader, away_s=away_s, is_late=is_late):
        await _cut_off(made, load, far, node, victim, away_s)
        began = now()
        assert made.routes is not None
        made.routes.heal(is_late=is_late)
        await becomes(made.is_replicated, limit_s=SERVING_BOUND_S)
        _measured(made, "healed to all replicas current", now() - began, SERVING_BOUND_S)
        await becomes(lambda: _is_accepted(load, far), limit_s=SERVING_BOUND_S)
        _measured(made, "healed to accepted jobs", now() - began, SERVING_BOUND_S)
        for name in made.proxies:
            made.bind(name, made.nodes)
    for name in made.workers:
        if name != victim and (whys := fences(made, name)[before[name] :]):
            made.finding(f"a healthy runner was fenced: {name}: {whys}")
    await more_accepted(made, load, 50)


async def _is_accepted(load: Load, account: Account) -> bool:
    return await load.probe(account) == 202


async def _sides(made: Rig, node: NatsServer) -> str:
    """Let the shared device's holder and the second front reach only ``node``, and no others. Returns the holder."""
    others = [other for other in made.nodes if other is not node]
    await made.until(lambda: bool(_held(made)), limit_s=120, what="a holder")
    victim = str(_held(made)["owner"])
    for name, proxies in made.proxies.items():
        made.bind(name, [node] if name in {victim, FRONT} else others)
        await made.until(lambda proxies=proxies: any(proxy.links for proxy in proxies), what=f"{name} connects again")
    await made.refresh()
    return victim


def _held(made: Rig) -> Entry:
    """The lease of the shared device, empty while no worker holds it."""
    return next((held for held in made.recorder.holders.values() if held["owner"] in SHARING), {})


async def _cut_off(made: Rig, load: Load, far: Account, node: NatsServer, victim: str, away_s: float) -> None:
    """The one side fences and promises nothing, the other goes on; returns after ``away_s``, or later."""
    runner, token = made.runner_of(victim), _held(made)["token"]
    assert made.routes is not None
    began = now()
    made.routes.cut(made.nodes.index(node))

    async def dies() -> None:
        await made.until(lambda: not is_alive(runner), what=f"the end of {victim}'s runner")
        _measured(made, "cut to runner dead", now() - began, FENCE_S)

    async def moves() -> None:
        await made.until(lambda: _held(made).get("token", 0) > token, what="another holder")
        _measured(made, "cut to another holder", now() - began, HELD_S)
        if _held(made).get("owner") == victim:
            made.finding(f"{victim} took the device again with a minority")

    async def asks() -> None:
        posted, looked = Counter[int](), Counter[int]()
        while now() - began < away_s:
            posted[await load.probe(far)] += 1
            got = await far.call("GET", f"/v1/jobs/{load.accounts[0].latest}")
            looked[got.status if got is not None else 0] += 1
            await asyncio.sleep(PROBE_S)
        print(f"told by the minority in {away_s:g} s: jobs {dict(posted)}, looks {dict(looked)}")
        if posted.keys() - {503}:
            made.finding(f"not only 503 by a minority: {dict(posted)}")
        if looked.keys() - {200, 503}:
            made.finding(f"a job that others accepted is, to a minority, {dict(looked)}")

    async with asyncio.TaskGroup() as group:
        for work in (dies, moves, asks):
            group.create_task(work())
    silent_s = longest_silence(made, began, now())
    _measured(made, "longest without an accepted job", silent_s, SERVING_BOUND_S)


def _measured(made: Rig, what: str, seconds: float, bound_s: float) -> None:
    measured(made, "split", "nats", what, seconds, bound_s)
