"""The queue product's own SDK, ``eas-prediction``, unmodified: every call of its client of queues, and predictions."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from signalbox.bus import queues, table
from signalbox.bus.client import Bus
from signalbox.wire.names import Bucket, token
from signalbox.wire.queues import Queue, rear_config
from tests import depth
from tests.conformance.clients.environments import environment
from tests.conformance.clients.steps import Target
from tests.conformance.conftest import KINDS as FRONTS
from tests.conformance.programs import ROOT
from tests.conformance.test_signalbox_front import House, housed, prepare, publish
from tests.rigs.gateway import ALL_SCOPES, Key, key
from tests.rigs.memoryqueues import QUEUE_SCOPES
from tests.rigs.natsserver import NatsServer

KINDS = depth.at(short=FRONTS[:1], full=FRONTS)
SCRIPT_S = 240.0
QUEUE = "chat"
_REAR_BYTES = 16 * 1024 * 1024
Report = dict[str, Any]


@asynccontextmanager
async def queued(house: House, mine: Key) -> AsyncIterator[Bus]:
    """The queue of the script, and its owner's key."""
    bus = await Bus.connect(house.wire, role="admin", name="conformance")
    try:
        queue = Queue(name=QUEUE, account_id=mine.stored.account_id)
        rear = rear_config(1, _REAR_BYTES)
        await bus.request_json(f"$JS.API.STREAM.CREATE.{rear['name']}", rear)
        await queues.declare(bus, queue)
        await table.put(bus, Bucket.QUEUES, token(QUEUE), queue)
        await publish(bus, mine)
        yield bus
        await table.remove(bus, Bucket.QUEUES, token(QUEUE))
        await queues.remove(bus, QUEUE)
        await bus.request_json(f"$JS.API.STREAM.DELETE.{rear['name']}")
    finally:
        await bus.close()


async def script(house: House) -> Report:
    """What came of each of the script's steps."""
    made = environment("eas")
    if made.python is None:
        pytest.skip(f"the packages of eas-prediction cannot be had: {made.missing}")
    mine = key(scopes=(*ALL_SCOPES, *QUEUE_SCOPES))
    target = Target(urlsplit(house.url).netloc, house.grpc, mine.text, "")
    async with queued(house, mine) as bus, house.serving(bus):
        process = await asyncio.create_subprocess_exec(
            made.python,
            ROOT / "tests" / "conformance" / "clients" / "eas_client.py",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            async with asyncio.timeout(SCRIPT_S):
                printed, _ = await process.communicate(json.dumps(target._asdict()).encode())
        finally:
            if process.returncode is None:
                process.kill()
    assert process.returncode == 0
    found: Report = json.loads(printed.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def eas(kind: str, shared_server: NatsServer) -> Iterator[Report]:
    if kind not in {"edge", "tyk"}:
        pytest.skip("has no queue of ours")
    asyncio.run(prepare(shared_server))
    with housed(kind, shared_server) as house:
        yield asyncio.run(script(house))


def test_what_is_put_is_got_by_index_by_tag_and_from_either_end(eas: Report) -> None:
    assert eas["put_and_get"] == {
        "ordered": True,
        "kept": ["one", "\x00two", "urgent"],
        "indexes": [True] * 3,
        "tags": ["cat", True, 2],
        "newest": ["urgent"],
        "dog": ["\x00two"],
        "taken": ["one"],
        "then": "\x00two",
    }


def test_a_caller_finds_its_result_by_its_request(eas: Report) -> None:
    assert eas["a_result_by_its_request"] == {"data": ["answer"], "same": True}


def test_an_empty_poll_ends_before_the_client_s_own_time(eas: Report) -> None:
    assert eas["an_empty_poll"] == {"found": 0, "in_time": True}


def test_a_watch_gives_each_item_once_and_a_known_group_goes_on(eas: Report) -> None:
    assert eas["a_watch"] == {"first": ["urgent", "0", "1", "2"], "rest": ["3", "4"]}


def test_what_a_consumer_leaves_behind_goes_to_the_next(eas: Report) -> None:
    assert eas["a_watch_that_leaves"] == {"held": ["0", "1"], "again": ["0", "1", "2"]}


def test_watches_without_data_with_filters_and_from_the_end(eas: Report) -> None:
    assert eas["other_watches"] == {
        "bare": [["", "False"]],
        "auto": ["0", "1", "2", "3"],
        "odd": ["1", "3"],
        "group": 4,
        "late": ["new"],
    }


def test_attributes_and_search_say_where_things_stand(eas: Report) -> None:
    assert eas["looks"] == {
        "name": QUEUE,
        "length": 3,
        "room": 8192,
        "user": "X-EAS-QueueService-Redis-Uid",
        "mine": ["Pending: 1", "Status: Running", "Window: 1", "Slots: 0", "AutoCommit: false"],
        "pending": {"IsPending": True, "WaitCount": 0},
        "waiting": {"IsPending": False, "WaitCount": 1},
        "nonsense": {},
    }


def test_items_are_removed_one_by_one_and_below_an_index(eas: Report) -> None:
    assert eas["removals"] == {"deleted": "OK", "left": ["4", "5"]}


def test_the_client_raises_what_the_server_said(eas: Report) -> None:
    assert eas["refusals"] == {
        "wrong key": 401,
        "no such queue": 404,
        "tag of ours": 400,
        "too large": 413,
        "not given out": 409,
    }


def test_the_same_address_predicts_json_and_arrays(eas: Report) -> None:
    found = eas["predictions"]
    assert json.loads(found["text"]) == {"predictions": [2.5, 3.0]}
    assert (found["values"], found["shape"]) == ([2.5, 3.0, 3.5], [3])
    assert json.loads(found["custom_url"]) == {"predictions": [4.0]}
