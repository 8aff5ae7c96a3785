"""The scenario in which one node of three, with a worker and a front that reach no other, is cut off from the rest."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Final

from signalbox.ops import probes
from signalbox.ops.ports import HOST, free_port
from signalbox.program.errors import SignalboxError
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from tests.rigs.processes import is_alive
from verification.chaos.evidence.journal import Entry, now
from verification.chaos.faults.fault import WIDE_S, measured, struck
from verification.chaos.rig.rig import Rig
from verification.chaos.scenarios.scene import SILENT, fences, longest_silence, more_accepted, note_fenced
from verification.chaos.traffic.account import Account
from verification.chaos.traffic.load import PROBE_S

FRONT: Final = "gateway-2"
DEVICES: Final = ("cpu:0", "cpu:1")
SHARING: Final = ("worker-1", "worker-3")
"""Workers of one device, of whom the holder is cut off. The other device's only worker goes on."""
PATIENT: Final = {"worker": {"SIGNALBOX_WORKER_QUANTUM_S": "600"}}
"""Or the quantum would end some sessions before the fence does."""
LEADERS: Final = ("KV_leases", "STATE", "JOBS")
"""Streams that decisions rest on."""
AWAY_S: Final = (20.0, 45.0)
"""Before and after nodes give each other up, which takes some 30 s."""


async def split(made: Rig, rng: random.Random, *, is_leader: bool) -> None:
    """A node that leads nothing that decisions rest on is cut off, or one that leads all of it."""
    if FRONT not in made.proxies:
        await _start_front(made)
    ann = made.load.accounts[0]
    url = f"http://{made.child(FRONT).spec.env['SIGNALBOX_GATEWAY_EDGE_LISTEN']}"
    far = Account(ann.name, url, ann.key, made.load.ledger)
    leader, node = rng.sample(made.nodes, 2)
    if is_leader:
        node = leader
    await _elect(made, leader)
    victim = await _sides(made, node)
    await more_accepted(made, 50)
    await becomes(made.is_replicated, limit_s=60)
    await made.until(
        lambda: _held(made).get("owner") == victim and made.are_inside(), limit_s=120, what=f"{victim} inside"
    )
    before = {name: len(fences(made, name)) for name in made.workers if name != victim}
    away_s, is_late = rng.choice(AWAY_S), rng.random() < 0.5
    async with struck(made, "split", "all", node=node.name, is_leader=is_leader, away_s=away_s, is_late=is_late):
        await _cut_off(made, far, node, victim, away_s)
        began = now()
        assert made.routes is not None
        made.routes.heal(is_late=is_late)
        await becomes(made.is_replicated)
        _measured(made, "healed to all replicas current", now() - began)

        async def is_accepted() -> bool:
            return await made.load.probe(far) == 202

        await becomes(is_accepted)
        _measured(made, "healed to accepted jobs", now() - began)
        for name in made.proxies:
            made.bind(name, made.nodes)
    for name, since in before.items():
        note_fenced(made, name, since)
    await far.pool.close()


async def _start_front(made: Rig) -> None:
    address = f"{HOST}:{free_port()}"
    env = {**made.env("gateway"), "SIGNALBOX_GATEWAY_LISTEN": "", "SIGNALBOX_GATEWAY_EDGE_LISTEN": address}
    ready = partial(probes.http, f"http://{address}", "/hello")
    await made.start(made.spec(FRONT, "gateway_plugin", env=env, ready=ready))


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


async def _cut_off(made: Rig, far: Account, node: NatsServer, victim: str, away_s: float) -> None:
    """The one side fences and promises nothing, the other goes on; returns after ``away_s``, or later."""
    runner, token = made.runner_of(victim), _held(made)["token"]
    assert made.routes is not None
    began = now()
    made.routes.cut(made.nodes.index(node))

    async def dies() -> None:
        await made.until(lambda: not is_alive(runner), what=f"the end of {victim}'s runner")
        _measured(made, "cut to runner dead", now() - began)

    async def moves() -> None:
        await made.until(lambda: _held(made).get("token", 0) > token, what="another holder")
        _measured(made, "cut to another holder", now() - began)
        if _held(made).get("owner") == victim:
            made.finding(f"{victim} took the device again with a minority")

    async def asks() -> None:
        posted, looked = Counter[int](), Counter[int]()
        while now() - began < away_s:
            posted[await made.load.probe(far)] += 1
            got = await far.call("GET", f"/v1/jobs/{made.load.accounts[0].latest}")
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
    _measured(made, f"the others {SILENT}", longest_silence(made, began, now()))


def _measured(made: Rig, what: str, seconds: float) -> None:
    measured(made, "split", "nats", what, seconds, WIDE_S)
