"""Two thousand malformed requests and frames at a queue in a real NATS: none is our failure, and the queue goes on."""

import asyncio
import random
from collections import Counter
from pathlib import Path

from gateway_plugin.upstream.server import HttpServer
from signalbox.bus import queues, table
from signalbox.program.tasks import TaskGroup
from signalbox.wire.names import Bucket, token
from signalbox.wire.queues import Queue, rear_config
from tests.rigs.edge import edge
from tests.rigs.gateway import ALL_SCOPES, key, rig
from tests.rigs.memoryqueues import QUEUE_SCOPES
from tests.rigs.natsserver import NatsServer
from verification.fuzz import harness
from verification.fuzz.mutator import Mutator
from verification.fuzz.queues import answers, judged

INPUTS = 2_000
AT_ONCE = 8
SEED = 20_261_129


async def test_no_malformed_request_or_frame_is_our_failure(nats: NatsServer, tmp_path: Path) -> None:
    mine = key(scopes=(*ALL_SCOPES, *QUEUE_SCOPES))
    async with rig(nats.url, tmp_path) as made:
        bus = made.bus
        queue = Queue(name="chat", account_id=mine.stored.account_id)
        rear = rear_config(1, 1024 * 1024)
        await bus.request_json(f"$JS.API.STREAM.CREATE.{rear['name']}", rear)
        await queues.declare(bus, queue)
        await made.publish(mine)
        await table.put(bus, Bucket.QUEUES, token("chat"), queue)
        server = await HttpServer.start(made.gateway.http_upstream(is_front=True), listen="127.0.0.1:0")
        host, _, port = server.address.rpartition(":")
        try:
            outcomes = await _told((host, int(port)), mine.text)
        finally:
            await server.close(5)
        async with edge(made) as client:
            headers = {"Authorization": mine.text}
            emptied = await client.delete(f"/v1/queues/chat?_index_={2**62}&_trunc_=true", headers=headers)
            put = await client.post("/v1/queues/chat?after=it", content=b"well", headers=headers)
            got = await client.get("/v1/queues/chat?_raw_=true&after=it&_timeout_=5s", headers=headers)
    refused = sum(count for (status, *_), count in outcomes.items() if isinstance(status, int) and status >= 400)
    assert refused >= INPUTS // 4, outcomes
    assert len(outcomes) >= 8, "as good as all are answered alike"
    assert any(outcome[0] == 101 and outcome[-1] in {1002, 1009} for outcome in outcomes), outcomes
    assert emptied.status_code == 200, "what had ended goes on"
    assert (put.status_code, got.content) == (200, b"well")


async def _told(address: tuple[str, int], text: str) -> Counter[tuple[object, ...]]:
    """What became of each input."""
    target = harness.target("queues")
    mutator = Mutator(random.Random(SEED), target.tokens)
    inputs = iter([mutator.mutated(target.seeds) for _ in range(INPUTS)])
    outcomes: Counter[tuple[object, ...]] = Counter()

    async def say() -> None:
        for data in inputs:
            sent = data.replace(b"Authorization: mine", b"Authorization: " + text.encode())
            outcomes[judged(await answers(address, sent)) or (None,)] += 1

    async with asyncio.timeout(300), TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(say())
    assert sum(outcomes.values()) == INPUTS
    return outcomes
