"""``Client.queue`` against the plugin over a real NATS, and the programs that docs/queues.md and docs/eas.md have."""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from gateway_plugin.upstream.server import HttpServer
from signalbox.bus import queues, table
from signalbox.client import AsyncClient, Client, errors
from signalbox.client.queues import AsyncQueue, Found, Item
from signalbox.wire import names
from signalbox.wire.keydocs import Share
from signalbox.wire.names import Bucket
from signalbox.wire.queues import Queue, QueueState, SideState, rear_config
from tests.conformance.clients.environments import environment
from tests.rigs.gateway import Rig, holds, key, rig
from tests.rigs.natsserver import NatsServer

PAGES: Final = Path(__file__).resolve().parents[3] / "docs"
ALL: Final = ("queues:put", "queues:get", "queues:watch", "queues:manage")


class Service(NamedTuple):
    """A plugin with a queue ``sums``. url: of its edge. key: that may do everything to it."""

    rig: Rig
    url: str
    key: str

    async def make(self, **fields: object) -> None:
        """Make the queue, or change it."""
        queue = Queue(name="sums", account_id="mine", **fields)  # type: ignore[arg-type]
        await queues.declare(self.rig.bus, queue)
        await table.put(self.rig.bus, Bucket.QUEUES, names.token("sums"), queue)


@asynccontextmanager
async def serving(rigged: Rig) -> AsyncIterator[Service]:
    made = key(scopes=ALL, account_id="mine")
    await rigged.publish(made)
    server = await HttpServer.start(rigged.gateway.http_upstream(is_front=True), listen="127.0.0.1:0")
    try:
        yield Service(rigged, f"http://{server.address}", made.text)
    finally:
        await server.close(1)


@pytest.fixture
async def service(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Service]:
    async with rig(nats.url, tmp_path) as rigged, serving(rigged) as found:
        await rigged.bus.request_json("$JS.API.STREAM.CREATE.REAR", rear_config(1, 1_000_000))
        await found.make()
        try:
            async with AsyncClient(found.url, found.key) as client:
                await known(client.queue("sums"))
            yield found
        finally:
            await queues.remove(rigged.bus, "sums")
            await rigged.bus.request_json("$JS.API.STREAM.DELETE.REAR")


async def known(queue: AsyncQueue) -> None:
    """Return once the plugin has heard of it."""
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(errors.NotFound):
                await queue.attributes()
                return
            await asyncio.sleep(0.01)


async def watched(queue: AsyncQueue) -> str:
    """What the first consumer of a queue is, once the plugin has told of it."""
    async with asyncio.timeout(10):
        while "consumers.list.[0]" not in (found := await queue.attributes()):  # noqa: ASYNC110  a client has no event
            await asyncio.sleep(0.01)
        return found["consumers.list.[0]"]


async def buried(queue: AsyncQueue) -> Item:
    """The first dead item, once there is one."""
    async with asyncio.timeout(10):
        while not (found := await queue.get(rear=True, delete=False)):  # noqa: ASYNC110  nobody is told
            await asyncio.sleep(0.01)
        return found[0]


async def test_an_item_is_put_watched_worked_and_its_result_found(service: Service) -> None:
    async with AsyncClient(service.url, service.key) as client:
        queue = client.queue("sums", uid="worker")
        receipt = await queue.put(b"1 2", tags={"kind": "small"}, high=True)
        assert await queue.count() == await queue.count(high=True) == await queue.count(tags={"kind": "small"}) == 1
        assert await queue.search(receipt.index) == Found(is_pending=False, wait_count=0)
        async with aclosing(queue.watch()) as items:
            item = await anext(items)
            assert (item.index, item.data, item.tags["kind"]) == (receipt.index, b"1 2", "small")
            assert item.request_id == receipt.request_id
            assert await queue.search(item.index) == Found(is_pending=True, wait_count=0)
            assert (await watched(queue)).startswith("Id: eas.worker, ")
            await queue.sink.put(b"3", tags={"requestId": item.request_id})
            await queue.commit(item)
        (answer,) = await queue.sink.get(request_id=receipt.request_id)
        assert (answer.data, answer.request_id) == (b"3", receipt.request_id)
        assert await queue.count() == await queue.sink.count() == 0


async def test_what_a_loop_has_left_comes_back_and_what_it_has_passed_does_not(service: Service) -> None:
    async with AsyncClient(service.url, service.key) as client:
        queue = client.queue("sums")
        for number in range(3):
            await queue.put(b"%d" % number)
        async with aclosing(queue.watch(window=2)) as items:
            assert [(await anext(items)).data for _ in range(2)] == [b"0", b"1"]  # the first is committed by the second
        async with asyncio.timeout(10):
            async with aclosing(client.queue("sums").watch(window=3)) as items:
                assert sorted([(await anext(items)).data for _ in range(2)]) == [b"1", b"2"]


async def test_what_is_given_back_too_often_is_found_in_the_rear_queue(service: Service) -> None:
    await service.make(max_delivery=2)
    async with AsyncClient(service.url, service.key) as client:
        queue = client.queue("sums")
        poison = await queue.put(b"poison")
        async with asyncio.timeout(20), aclosing(queue.watch()) as items:
            for _ in range(2):
                await queue.nack(await anext(items), code="NotNow", reason="busy")
            again = asyncio.ensure_future(anext(items))
            dead = await buried(queue)
            await queue.put(b"good")
            assert (await again).data == b"good"
        assert (dead.data, dead.notes["_index_"]) == (b"poison", str(poison.index))
        await queue.delete(dead, rear=True)
        assert await queue.get(rear=True) == []


async def test_a_watch_ends_with_its_stream_and_puts_are_refused_then(service: Service) -> None:
    def plainly() -> list[bytes]:
        with Client(service.url, service.key) as client:
            queue = client.queue("sums")
            for text in (b"1", b"2"):
                queue.put(text)
            queue.end()
            with pytest.raises(errors.Conflict):
                queue.put(b"3")
            found = [item.data for item in queue.watch()]
            queue.truncate(1_000_000)
            queue.put(b"4")
            return found

    assert await asyncio.to_thread(plainly) == [b"1", b"2"]


async def test_an_account_that_has_its_bytes_in_queues_is_told_so_and_a_group_is_forgotten(service: Service) -> None:
    bounded = key(scopes=ALL, account_id="mine", share=Share(queue_bytes=1000))
    await service.rig.publish(bounded)
    async with AsyncClient(service.url, bounded.text, retries=0) as client:
        queue = client.queue("sums", group="audit")
        await queue.put(b"1")
        full = QueueState(source=SideState(size=999))
        await table.put(service.rig.bus, Bucket.QUEUE_STATES, names.token("sums"), full)
        states = service.rig.gateway._queue_parts.bytes._states
        await holds(states, lambda: names.token("sums") in states.items())
        with pytest.raises(errors.LimitExceeded, match="999 bytes"):
            await queue.put(b"1 2 3")
        async with aclosing(queue.watch()) as items:
            await anext(items)
            with pytest.raises(errors.Conflict, match="end its watches first"):
                await queue.forget_group()
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(errors.Conflict):  # it hears of the end a moment later
                    await queue.forget_group()
                    break
        assert "audit" not in str(await queue.attributes())


async def test_of_two_watches_under_one_uid_the_newer_goes_on(service: Service) -> None:
    async with AsyncClient(service.url, service.key) as client:
        old, new = (client.queue("sums", uid="one").watch() for _ in range(2))
        waits = asyncio.ensure_future(anext(old))
        queue = client.queue("sums")
        await watched(queue)
        goes_on = asyncio.ensure_future(anext(new))
        with pytest.raises(errors.Conflict):
            await waits
        await queue.put(b"1")
        assert (await goes_on).data == b"1"
        await new.aclose()


async def test_what_a_key_may_not_do_is_said(service: Service) -> None:
    poor, other = key(scopes=("queues:put",), account_id="mine"), key(scopes=ALL, account_id="else")
    await service.rig.publish(poor, other)
    async with AsyncClient(service.url, poor.text) as mine, AsyncClient(service.url, other.text) as theirs:
        await mine.queue("sums").put(b"1")
        with pytest.raises(errors.Forbidden):
            await mine.queue("sums").get()
        with pytest.raises(errors.Forbidden):
            await anext(mine.queue("sums").watch())
        with pytest.raises(errors.NotFound):
            await theirs.queue("sums").put(b"1")


def programs(language: str, page: str = "queues") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / f"{page}.md").read_text("utf-8"), re.DOTALL)


def here(program: str, service: Service) -> str:
    """The page's program, with our address and key."""
    front = service.url.removeprefix("http://")
    return program.replace("127.0.0.1:8080", front).replace("sbx_live_...", service.key)


@asynccontextmanager
async def running(program: str) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    try:
        yield
        assert process.returncode is None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def printed(*argv: str, **env: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=env or None
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_documentation_s_workers_and_their_caller_do_what_it_says(service: Service) -> None:
    worker, caller, tasks = (here(program, service) for program in programs("python"))
    for each in (worker, tasks):
        async with running(each):
            assert await printed(sys.executable, "-c", caller) == "b'6'\n"


async def test_the_documentation_s_curl_works(service: Service) -> None:
    (_, script) = programs("sh")
    *first, last = script.strip().splitlines()
    where = {"FRONT": service.url, "KEY": service.key}
    out = await printed("bash", "-c", "; echo; ".join(line.rpartition("#")[0] for line in first), **where)
    index, data, attributes = out.splitlines()
    assert (index, data) == ("1", "1 2 3")
    assert '"stream.length":"1"' in attributes.replace(" ", "")
    async with AsyncClient(service.url, service.key) as client:
        await client.queue("sums").sink.put(b"6")
    assert await printed("bash", "-c", last.rpartition("#")[0], **where) == "6"


async def test_the_product_s_own_client_does_what_the_documentation_says(service: Service) -> None:
    made = await asyncio.to_thread(environment, "eas")
    if made.python is None:
        pytest.skip(f"the packages of eas-prediction cannot be had: {made.missing}")
    (program,) = programs("python", "eas")
    assert await printed(str(made.python), "-c", here(program, service)) == "b'1 2 3'\n"


async def test_the_command_line_puts_gets_and_watches(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(service.key)

    async def said(act: str, *words: str) -> str:
        place = ("--front", service.url, "--key-file", str(file))
        return await printed(sys.executable, "-m", "signalbox", "queues", act, "sums", *words, *place)

    put = json.loads(await said("put", "--text", "1 2", "--tag", "kind=small", "--json"))
    kept = json.loads(await said("get", "--keep", "--tag", "kind=small", "--json"))
    assert kept == {"index": put["index"], "text": "1 2", "tags": {"kind": "small", "requestId": put["request_id"]}}
    assert await said("get") == "1 2\n"
    await said("put", "--sink", "--text", "last")
    async with AsyncClient(service.url, service.key) as client:
        await client.queue("sums").sink.end()
    assert await said("watch", "--sink") == "last\n"
