"""The scenario in which an API key is revoked, the front connected to NATS or cut off."""

import asyncio
import time
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from signalbox.bus import table
from signalbox.wire.messages import ApiKey, decode
from signalbox.wire.names import Bucket, key
from tests.rigs import models
from tests.rigs.outage import becomes, floats
from verification.chaos.environment.proxy import CUT, Weather
from verification.chaos.evidence.journal import now
from verification.chaos.faults.fault import measured
from verification.chaos.rig.rig import Rig, rig
from verification.chaos.scenarios.outages import FENCE_S
from verification.chaos.scenarios.scene import say, settled
from verification.chaos.traffic.account import Account

REVOKED_S: Final = 1.0


async def revoke(folder: Path, rounds: int, seed: int) -> None:
    """A key is revoked in KV, as the console's outbox does it, until 401; then the same with the front cut off."""
    async with rig(folder, workers=0) as made:
        await made.add_model("half", models.half_plus_two(), floats())
        for number in range(rounds):
            await _revoked(made, number, is_cut_off=False)
            say(number, rounds)
        for number in range(max(3, rounds // 50)):
            await _revoked(made, number, is_cut_off=True)
        await settled(made)


async def _revoked(made: Rig, number: int, *, is_cut_off: bool) -> None:
    text = await made.add_key(name=f"r{number}")
    ledger = Account("r", made.front_url, text, made.faults, callers=1)

    async def status() -> int:
        got = await ledger.call("GET", "/v1/models")
        return got.status if got is not None else 0

    async def is_let_in() -> bool:
        return await status() == 200

    await becomes(is_let_in, limit_s=60)
    stored = await made.bus.leader_get(Bucket.KEYS.stream, key(Bucket.KEYS, _kid(text)))
    assert stored is not None
    revoked = replace(decode(ApiKey, stored.data), revoked_at=time.time())
    if is_cut_off:
        made.weather("gateway", CUT)
    began = now()
    await table.put(made.bus, Bucket.KEYS, _kid(text), revoked)
    try:
        while await status() == 200:
            if now() - began > 60:
                raise AssertionError("a revoked key is let in for ever")
            if is_cut_off:
                await asyncio.sleep(0.02)
        last = await status()
        what = "cut off: revoked to first refusal" if is_cut_off else "revoked to first 401"
        measured(made, "revoke", "gateway", what, now() - began, FENCE_S if is_cut_off else 15.0)
        if last != (503 if is_cut_off else 401):
            made.finding(f"a revoked key got {last}")
    finally:
        if is_cut_off:
            made.weather("gateway", Weather())
            for proxy in made.proxies["gateway"]:
                proxy.reset()

    async def is_refused() -> bool:
        found = await status()
        if found == 200:
            made.finding("a revoked key was let in again after the front was reconnected")
        return found == 401

    await becomes(is_refused, limit_s=60)
    await ledger.pool.close()


def _kid(text: str) -> str:
    return text.split("_")[2]
