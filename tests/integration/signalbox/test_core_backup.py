"""A backup put back into an empty NATS is what was saved; what is damaged, half or in the way is refused first."""

import asyncio
import json
import os
import resource
import signal
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from signalbox.bus import queues, table, topology
from signalbox.bus.client import Bus, Delivery
from signalbox.jobs import delivery
from signalbox.ops import backup, queuebackup, snapshots
from signalbox.ops.backup import KEPT, MANIFEST
from signalbox.ops.replicas import wait_current
from signalbox.program.errors import Misconfigured, NotFound, SignalboxError, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import names, queuenames
from signalbox.wire.assets import COUNTED, MIB, STREAMS
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.queues import Queue
from tests.integration.gateway_plugin.test_edge_nats_cluster import Cluster, cluster
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from tests.rigs.streams import counted
from verification.chaos.environment.routes import NodeRoutes

__all__ = ["cluster"]

JOB = names.job("m", "hi", "t", "00000000-0000-0000-0000-000000000001")
JOBS = 50
MOST_BYTES = 96 * MIB
RECORD = names.state("00000000-0000-0000-0000-000000000001")


def unseen(line: str) -> None:
    """For what a person should read, and a test need not."""


@asynccontextmanager
async def connected(server: NatsServer, *, request_timeout_s: float = 10) -> AsyncIterator[Bus]:
    settings = Wire(nats_url=server.url, request_timeout_s=request_timeout_s)
    bus = await Bus.connect(settings, role="admin")
    try:
        yield bus
    finally:
        await bus.close()


@pytest.fixture
async def full(own_nats: NatsServer) -> AsyncIterator[Bus]:
    """A NATS with something in many streams, one of them several blocks and many chunks long."""
    async with connected(own_nats) as bus:
        await bus.write(JOB, b"input", headers={"Sb-Job": "{}"})
        for number in range(2, 1 + JOBS):
            await bus.write(f"jobs.m.hi.t.s.{number}", os.urandom(100_000))
        await bus.write(RECORD, b"running")
        await bus.write(RECORD, b"succeeded")
        await bus.write(names.key(Bucket.MODELS, "m"), b"a model")
        for _ in range(20):
            await bus.write(names.payload("shop", "1", "out1"), os.urandom(1_000_000))
        for number in range(3):
            await bus.write(names.key(Bucket.LEASES, f"gpu{number}"), b"{}", ttl_s=60)
        await becomes(lambda: has_events(bus, 3))
        yield bus


async def has_events(bus: Bus, count: int) -> bool:
    """Whether the server has sourced so many: it does so in its own time and sends no event."""
    return bool((await contents(bus, Stream.EVENTS))[0][0] >= count)


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Bus]:
    """A NATS that holds nothing."""
    async with NatsServer(tmp_path / "empty") as server, connected(server) as bus:
        yield bus


async def contents(bus: Bus, stream: str) -> list[tuple[Any, ...]]:
    """How much a stream holds, its last sequence, and everything in it in order."""
    info = (await bus.request_json(f"$JS.API.STREAM.INFO.{stream}"))["state"]
    found: list[tuple[Any, ...]] = [(info["messages"], info["last_seq"])]
    for seq in range(max(1, info["first_seq"]), info["last_seq"] + 1):
        try:
            reported = await bus.request_json(f"$JS.API.STREAM.MSG.GET.{stream}", {"seq": seq})
        except NotFound:
            continue
        message = reported["message"]
        found.append((message["seq"], message["subject"], message.get("hdrs"), message["time"], message.get("data")))
    return found


def test_every_declared_stream_is_kept_or_counted() -> None:
    assert sorted((*KEPT, *COUNTED)) == sorted(declared["name"] for declared in STREAMS)


async def test_what_is_restored_is_what_was_saved_message_for_message(full: Bus, empty: Bus, tmp_path: Path) -> None:
    was = {name: await contents(full, name) for name in KEPT}
    said: list[str] = []
    await backup.take(full, tmp_path / "kept", said.append)
    await backup.restore(empty, tmp_path / "kept", unseen)
    assert {name: await contents(empty, name) for name in KEPT} == was
    assert was[Stream.PAYLOADS][0][0] == 20
    assert "PAYLOADS: 20 messages, 19.1 MiB" in said
    assert await topology.check(empty) == []
    await counted(empty, "m", "hi", waiting=JOBS)
    assert await empty.write(names.state("2"), expect=0) == was[Stream.STATE][0][1] + 1


@asynccontextmanager
async def of_two_accounts(server: NatsServer) -> AsyncIterator[tuple[Bus, Bus]]:
    """Connections of the admins to both."""
    wire = Wire(
        nats_url=server.url,
        nats_user="admin",
        nats_password="a",
        queues_nats_user="admin-queues",
        queues_nats_password="q",
    )
    async with await Bus.connect(wire, role="admin") as bus, await queues.connect(wire, role="admin") as queue_bus:
        yield bus, queue_bus


async def test_queues_come_back_with_what_each_group_had_committed_and_was_given(tmp_path: Path) -> None:
    users = {"admin": "a", "admin-queues": "q"}
    stream, other = queuenames.queue_stream("my.texts", "source"), "mine"
    async with (
        NatsServer(tmp_path / "a", users=users) as first,
        NatsServer(tmp_path / "b", users=users) as second,
        of_two_accounts(first) as (bus, queue_bus),
        of_two_accounts(second) as (empty, empty_queues),
    ):
        await topology.apply(bus)
        queue = Queue(name="my.texts", account_id="acme")
        await table.put(bus, Bucket.QUEUES, names.token("my.texts"), queue)
        await queues.declare(queue_bus, queue)
        await queues.declare_rear(queue_bus)
        await queues.make_group(queue_bus, queue, "source", other)
        for number in range(6):
            await queue_bus.write(queuenames.queue_item("my.texts", "source", "lo", str(number)), b"%d" % number)
        await queue_bus.write(queuenames.rear_item("my.texts", "sink"), b"dead")
        for group in ("eas", other):  # each is given three; both commit the first, and one of them the second
            given: list[Delivery] = []
            puller = await queue_bus.pull(queuenames.queue_consumer(group, "lo"), given.append, stream=stream)
            puller.ask(3)
            await becomes(partial(has, given, 3))
            await puller.close()
            for one in given[: 1 if group == other else 2]:
                await queue_bus.request(one.reply.decode(), b"+ACK")
        was = {name: await contents(queue_bus, name) for name in await queuebackup.existing(queue_bus)}
        assert list(was) == [stream, queuenames.queue_stream("my.texts", "sink"), queuenames.REAR]
        with pytest.raises(Misconfigured, match="SIGNALBOX_QUEUES_NATS_USER"):
            await backup.take(bus, tmp_path / "half", unseen)
        await backup.take(bus, tmp_path / "kept", unseen, queue_bus=queue_bus)
        with pytest.raises(Misconfigured, match="SIGNALBOX_QUEUES_NATS_USER"):
            await backup.restore(empty, tmp_path / "kept", unseen)
        with pytest.raises(Misconfigured, match=f"NATS already has .*{queuenames.REAR}"):
            await backup.restore(empty, tmp_path / "kept", unseen, queue_bus=queue_bus)
        await backup.restore(empty, tmp_path / "kept", unseen, queue_bus=empty_queues)
        assert {name: await contents(empty_queues, name) for name in was} == was
        assert [message[0] for message in was[stream][1:]] == [2, 3, 4, 5, 6]  # which one of the groups needs yet
        await queues.declare(empty_queues, queue)  # it is the same queue
        assert {name: await contents(empty_queues, name) for name in was} == was
        for group, given_out in (("eas", 1), (other, 2)):
            name = queuenames.queue_consumer(group, "lo")
            info = await empty_queues.request_json(f"$JS.API.CONSUMER.INFO.{stream}.{name}")
            assert (info["num_pending"], info["num_ack_pending"]) == (3, given_out)
            await empty_queues.request(f"$JS.ACK.{stream}.{name}.1.3.0.0.0", b"+ACK")  # by its index, as before
            info = await empty_queues.request_json(f"$JS.API.CONSUMER.INFO.{stream}.{name}")
            assert info["num_ack_pending"] == given_out - 1
        assert [message[0] for message in (await contents(empty_queues, stream))[1:]] == [2, 4, 5, 6]


async def has(given: list[Delivery], count: int) -> bool:
    return len(given) >= count


async def test_jobs_that_were_delivered_when_they_were_saved_are_delivered_again(
    full: Bus, empty: Bus, tmp_path: Path
) -> None:
    """The server restores a consumer too, and where it stood; who begins to serve the model makes it anew."""
    await counted(full, "m", "hi", waiting=JOBS)
    puller = await full.pull(names.consumer("m", "hi", 0), lambda _: None)
    puller.ask(3)
    await counted(full, "m", "hi", waiting=JOBS - 3)
    await backup.take(full, tmp_path / "kept", unseen)
    await puller.close()
    await backup.restore(empty, tmp_path / "kept", unseen)
    assert await delivery.queued_models(empty, ["m"]) == {"m"}
    made = await delivery.make_anew(empty, "m", "hi", 0)
    assert made.num_pending == JOBS


async def test_three_nodes_take_the_backup_of_one_and_one_takes_theirs(
    full: Bus, empty: Bus, cluster: Cluster, tmp_path: Path
) -> None:
    was = {name: await contents(full, name) for name in KEPT}
    await backup.take(full, tmp_path / "of one", unseen)
    three = await Bus.connect(cluster.wire("admin"), role="admin")
    try:
        await becomes(lambda: is_whole(three))
        await backup.restore(three, tmp_path / "of one", unseen, replicas=3)
        info = await three.request_json("$JS.API.STREAM.INFO.PAYLOADS")
        assert len(info["cluster"]["replicas"]) == 2
        assert {name: await contents(three, name) for name in KEPT} == was
        assert await topology.check(three) == []
        await counted(three, "m", "hi", waiting=JOBS)
        await backup.take(three, tmp_path / "of three", unseen)
    finally:
        await three.close()
    await backup.restore(empty, tmp_path / "of three", unseen, replicas=1)
    assert {name: await contents(empty, name) for name in KEPT} == was
    await counted(empty, "m", "hi", waiting=JOBS)
    assert await topology.check(empty) == []


async def test_what_is_not_to_be_had_is_waited_for_and_named(three: tuple[list[NatsServer], NodeRoutes]) -> None:
    servers, _ = three
    async with connected(servers[0], request_timeout_s=2) as bus:
        await becomes(lambda: is_whole(bus))
        await topology.apply(bus, 3)
        await wait_current(bus, [Stream.JOBS], 3)
        assert "stream NONE has no leader" in await lacking(bus, "NONE", 3)
        assert "stream STATE has 3 of 5 copies" in await lacking(bus, Stream.STATE, 5)
        await servers[2].kill()

        async def is_missed() -> bool:
            await becomes(lambda: writes(bus))
            return "the copy of stream STATE on n2 is not current" in await lacking(bus, Stream.STATE, 3)

        await becomes(is_missed)
        back = asyncio.create_task(wait_current(bus, [Stream.STATE, Stream.JOBS], 3))
        await servers[2].start()
        await back


async def lacking(bus: Bus, stream: str, replicas: int) -> str:
    """What is said to be missing now."""
    try:
        await wait_current(bus, [stream], replicas, still_s=0)
    except Unavailable as error:
        return str(error)
    return ""


async def writes(bus: Bus) -> bool:
    """Whether records are taken, as they are once STATE has a leader."""
    try:
        await bus.write(RECORD, b"running")
    except SignalboxError:
        return False
    return True


async def is_whole(bus: Bus) -> bool:
    """Whether a young cluster has agreed on who answers, and takes streams of three copies."""
    try:
        probe = {"name": "PROBE", "subjects": ["probe"], "num_replicas": 3}
        await bus.request_json("$JS.API.STREAM.CREATE.PROBE", probe)
        await bus.request_json("$JS.API.STREAM.DELETE.PROBE")
    except SignalboxError:
        return False
    return True


async def test_what_was_counted_goes_on_above_every_number_ever_given(full: Bus, empty: Bus, tmp_path: Path) -> None:
    await backup.take(full, tmp_path / "kept", unseen)
    writes = [full.write(names.key(Bucket.LEASES, "gpu"), b"{}", ttl_s=60) for _ in range(20)]
    last = max(await asyncio.gather(*writes))  # tokens that the backup knows nothing of
    await backup.restore(empty, tmp_path / "kept", unseen)
    assert (await contents(empty, Bucket.LEASES.stream))[0][0] == 0
    assert await empty.write(names.key(Bucket.LEASES, "gpu"), b"{}", ttl_s=60) > last


async def test_what_was_numbered_by_the_clock_since_the_backup_is_not_given_again(
    full: Bus, empty: Bus, tmp_path: Path
) -> None:
    await backup.take(full, tmp_path / "kept", unseen)
    by_clock = {"seq": topology.numbers_from(time.time())}  # as where the stream was lost
    await full.request_json(f"$JS.API.STREAM.PURGE.{Bucket.LEASES.stream}", by_clock)
    last = await full.write(names.key(Bucket.LEASES, "gpu"), b"{}", ttl_s=60)
    await backup.restore(empty, tmp_path / "kept", unseen)
    assert await empty.write(names.key(Bucket.LEASES, "gpu"), b"{}", ttl_s=60) > last


async def test_a_job_that_ends_while_streams_are_saved_is_not_lost(
    own_nats: NatsServer, empty: Bus, tmp_path: Path
) -> None:
    async def end_it() -> None:
        async with connected(own_nats) as bus:
            await bus.write(RECORD, b"succeeded")
            await bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.JOBS}")

    async with connected(own_nats) as bus:
        await bus.write(JOB, b"input")
        await bus.write(RECORD, b"running")
        await backup.take(bus, tmp_path / "kept", once(lambda: asyncio.run(end_it())))
    await backup.restore(empty, tmp_path / "kept", unseen)
    found = await empty.leader_get(Stream.STATE, RECORD)
    assert found is not None
    assert found.data == b"succeeded"
    queued = await empty.leader_get(Stream.JOBS, JOB)  # and not run by a worker, which reads its record
    assert queued is not None
    assert queued.data == b"input"


def once(act: Callable[[], None]) -> Callable[[str], None]:
    """Has another program do something after the first stream was saved, and waits until it is done."""
    acts = [act]

    def say(line: str) -> None:
        if acts:
            other = threading.Thread(target=acts.pop())
            other.start()
            other.join()

    return say


async def test_nothing_is_restored_over_what_exists(full: Bus, tmp_path: Path) -> None:
    await backup.take(full, tmp_path / "kept", unseen)
    was = {name: await contents(full, name) for name in KEPT}
    with pytest.raises(Misconfigured, match=r"already has JOBS, .*empty store folder"):
        await backup.restore(full, tmp_path / "kept", unseen)
    assert {name: await contents(full, name) for name in KEPT} == was


@pytest.mark.parametrize("harm", ["a byte", "an end", "a file", "the manifest", "a stream"])
async def test_a_harmed_backup_is_refused_before_anything_is_written(
    own_nats: NatsServer, empty: Bus, tmp_path: Path, harm: str
) -> None:
    async with connected(own_nats) as bus:
        await bus.write(RECORD, b"succeeded")
        await backup.take(bus, tmp_path / "kept", unseen)
    file, manifest = tmp_path / "kept" / "STATE.tar.s2", tmp_path / "kept" / MANIFEST
    data = file.read_bytes()
    if harm == "a byte":
        file.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])
    elif harm == "an end":
        file.write_bytes(data[:-1])
    elif harm == "a file":
        file.unlink()
    elif harm == "the manifest":
        manifest.unlink()
    else:
        doc = json.loads(manifest.read_text())
        doc["streams"] = [one for one in doc["streams"] if one["name"] != "STATE"]
        manifest.write_text(json.dumps(doc))
    with pytest.raises(Misconfigured):
        await backup.restore(empty, tmp_path / "kept", unseen)
    assert (await empty.request_json("$JS.API.STREAM.NAMES"))["total"] == 0


async def test_a_stream_that_nats_cannot_read_makes_no_backup(full: Bus, own_nats: NatsServer, tmp_path: Path) -> None:
    blocks = sorted((own_nats.folder / "store").rglob("PAYLOADS/msgs/*.blk"))
    assert len(blocks) > 2
    blocks[1].unlink()
    with pytest.raises(Misconfigured, match="NATS cannot read PAYLOADS"):
        await backup.take(full, tmp_path / "kept", unseen)
    with pytest.raises(Misconfigured, match="is not a whole backup"):
        backup.read(tmp_path / "kept")


async def test_a_connection_lost_in_the_middle_makes_no_backup(full: Bus, own_nats: NatsServer, tmp_path: Path) -> None:
    def lose_it(size_bytes: int) -> None:
        if own_nats.pid:
            os.kill(own_nats.pid, signal.SIGKILL)

    with pytest.raises(Unavailable, match="connection was lost during PAYLOADS"):
        await snapshots.save(full, Stream.PAYLOADS, tmp_path / "half", lose_it)


async def test_neither_way_needs_memory_for_what_passes(own_nats: NatsServer, empty: Bus, tmp_path: Path) -> None:
    async with connected(own_nats) as bus:
        for part in range(MOST_BYTES // MIB + 30):
            await bus.write(names.payload("shop", str(part), "out1"), os.urandom(1_000_000))
    assert await within_memory(own_nats.url, "backup", str(tmp_path / "kept")) == 0
    assert (tmp_path / "kept" / "PAYLOADS.tar.s2").stat().st_size > MOST_BYTES
    assert await within_memory(empty.settings.nats_url, "restore", str(tmp_path / "kept")) == 0


async def within_memory(url: str, *arguments: str) -> int:
    """Exit status of the signalbox command, which gets :data:`MOST_BYTES` from the kernel and no more."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "signalbox",
        *arguments,
        env={**os.environ, "SIGNALBOX_NATS_URL": url},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES)),
    )
    async with asyncio.timeout(120):
        return await process.wait()


async def test_a_backup_is_for_its_owner_alone_and_never_goes_into_another(
    own_nats: NatsServer, tmp_path: Path
) -> None:
    folder = tmp_path / "all" / "tonight"
    async with connected(own_nats) as bus:
        await backup.take(bus, folder, unseen)
        with pytest.raises(Misconfigured, match="tonight cannot be made: File exists"):
            await backup.take(bus, folder, unseen)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    saved = [stat.S_IMODE(file.stat().st_mode) for file in folder.glob("*.s2")]
    assert saved == [0o600] * len(KEPT)
