"""A rollout by weight under load: two gateways, a real NATS, a real worker around a toy engine."""

import itertools
from pathlib import Path

from signalbox.wire.modeldocs import Version
from signalbox.wire.names import token
from signalbox.wire.splits import Split, gets_candidate
from tests.integration.workers.test_rollout import NAME, Caller, Site, events, site
from tests.rigs import gateway as gatewayrig
from tests.rigs.gateway import Key
from tests.rigs.natsserver import NatsServer

KEYS = 12


def split(weight: float, header: str = "") -> Split:
    return Split(candidate=2, weight=weight, header=header)


async def publish(made: Site, *versions: Version, weight: float = 0.0, default: int = 1) -> None:
    """At both gateways: the default of all callers, and of which part the candidate is."""
    splits = (split(weight),) if weight else ()
    await made.publish(*versions, default=default, splits=splits)


async def until_counted(made: Site, *candidates: int) -> None:
    """Wait until the record has these."""
    await made.until(lambda: (r := made.serving.get(token(NAME))) and r.candidates == candidates)


def side(key: Key, weight: float) -> int:
    """The version that a key gets at a weight."""
    return 2 if gets_candidate(split(weight), NAME, key.stored.id, {}) else 1


async def keys_of_both_sides(made: Site) -> list[Key]:
    """Keys, some of which are on the candidate's side at 10 %, and some at 50 % alone."""
    found: list[Key] = []
    for low, high in ((2, 2), (1, 2), (1, 1)):
        fresh = (key for key in iter(gatewayrig.key, None) if (side(key, 0.1), side(key, 0.5)) == (low, high))
        found += itertools.islice(fresh, KEYS // 3)
    for rig in made.gateways:
        await rig.publish(*found)
    return found


async def settled(callers: dict[Caller, Key], weight: float, count: int = 5) -> None:
    """Wait until each caller is on its side, and has so many more answers from there."""
    for caller, key in callers.items():
        await caller.reached(side(key, weight))
    for caller, key in callers.items():
        await caller.answered(count, version=side(key, weight))


async def test_under_load_no_call_fails_and_none_is_on_the_wrong_side_of_its_key(
    nats: NatsServer, tmp_path: Path
) -> None:
    async with site(nats.url, tmp_path) as made:
        keys = await keys_of_both_sides(made)
        one, two = made.version(1), made.version(2, wait="")
        callers = {Caller(made._replace(key=key)): key for key in keys}
        await publish(made, one, two, weight=0.1)
        await made.until(lambda: made.states() == {1: "ready", 2: "loading"})
        await settled(callers, 0.0)
        (made.folder / "2" / "wait").unlink()
        await until_counted(made, 2)
        await settled(callers, 0.1)
        await publish(made, one, two, weight=0.5)
        await settled(callers, 0.5)
        await publish(made, one, two)  # rolled back
        await settled(callers, 0.0)
        await publish(made, one, two, weight=0.5)
        await until_counted(made, 2)
        await settled(callers, 0.5)
        await publish(made, one, two, default=2)  # promoted
        await settled(callers, 1.0)
        for caller, key in callers.items():
            seen = [version for version, _ in itertools.groupby(await caller.end())]
            assert seen == ([1, 2, 1, 2] if side(key, 0.5) == 2 else [1, 2]), key.stored.id
        record = made.serving.get(token(NAME))
        assert record is not None
        assert (record.default, record.candidates) == (2, ())


async def test_a_header_keeps_a_caller_on_its_side_at_both_gateways_whatever_its_key(
    nats: NatsServer, tmp_path: Path
) -> None:
    async with site(nats.url, tmp_path) as made:
        by_header = split(0.5, "X-User")
        await made.publish(made.version(1), made.version(2), default=1, splits=(by_header,))
        await until_counted(made, 2)
        for user in map(str, range(8)):
            wanted = 2 if gets_candidate(by_header, NAME, "", {"X-User": user}) else 1
            for rig in made.gateways:
                got = await rig.call(
                    "POST",
                    f"/v1/models/{NAME}:predict",
                    {"instances": [0.0]},
                    key=made.key,
                    headers={"X-User": user},
                )
                assert got.doc["predictions"] == [wanted]


async def test_a_candidate_is_counted_again_after_an_input_that_took_its_runner_down(
    nats: NatsServer, tmp_path: Path
) -> None:
    async with site(nats.url, tmp_path) as made:
        await publish(made, made.version(1), made.version(2, toy="fatal"), weight=0.5)
        await until_counted(made, 2)
        got = await made.gateways[0].call(
            "POST", f"/v1/models/{NAME}/versions/2:predict", {"instances": [-200.0]}, key=made.key
        )
        assert got.status == 422, got
        got = await made.gateways[0].call(
            "POST", f"/v1/models/{NAME}/versions/1:predict", {"instances": [-200.0]}, key=made.key
        )
        assert got.doc["predictions"] == [1], "the other version may run it"
        caller = Caller(made)
        loads = 1 + 3  # at first, and after each strike
        await caller.until(lambda: events(made.worker).count(("model.loaded", 2)) == loads)
        await until_counted(made, 2)
        await caller.end()
