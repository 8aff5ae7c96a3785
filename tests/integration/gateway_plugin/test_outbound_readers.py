"""An account's services read its ends with a NATS user of their own, as docs/results.md says, and nothing else."""

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

from gateway_plugin.outbound.follower import follow
from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.jobs import life
from signalbox.jobs.records import Records
from signalbox.program.settings import Wire
from signalbox.wire import names, outboundnames
from signalbox.wire.messages import decode
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.outbound import End, Subscription
from signalbox.wire.roles import reader_permissions
from tests.rigs.natsserver import NatsServer
from tests.rigs.rights import refused
from tests.rigs.streams import last_sequence
from tests.rigs.submit import Ledger, floats

PAGE = Path(__file__).parents[3] / "docs" / "results.md"
USERS = {"admin": "a", "outbound": "o", "reader-acme": "r", "reader-other": "s"}
API = "$JS.API"


class Rig:
    """A server with users, and a follower under its own. account: of the jobs that end."""

    def __init__(self, server: NatsServer, admin: Bus) -> None:
        self.server, self.admin = server, admin
        self.ledger, self.records = Ledger(admin), Records(admin)

    async def ended(self, account: str, body: bytes = b"") -> str:
        """A job of an account that has ended; its id."""
        body = body or floats(0.5, 1.5, name="y")
        job = self.ledger.job("half", b"", account_id=account)
        record = life.claimed(job, None, worker="w", gpu="g", token=1, now=time.time())
        done = life.succeeded(record, now=time.time(), batch=1, size_bytes=len(body))
        await self.records.write(done, body, expect=0)
        return job.id

    async def end(self, account: str, job_id: str) -> End:
        """The end of a job, once it has come."""
        async with asyncio.timeout(60):
            subject = outboundnames.result(account, "half", job_id)
            while (stored := await self.admin.leader_get(Stream.RESULTS, subject)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return decode(End, stored.data)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with NatsServer(tmp_path, users=USERS, readers=["acme", "other"]) as server:
        wires = {user: Wire(nats_url=server.url, nats_user=user, nats_password=USERS[user]) for user in USERS}
        async with await Bus.connect(wires["admin"], role="admin") as admin:
            await topology.apply(admin)
            await put(admin, Bucket.SUBSCRIPTIONS, "all", Subscription(id="all"))
            settings = OutboundSettings(nats_url=server.url, inline_bytes=1000)
            async with await Bus.connect(wires["outbound"], role="outbound") as bus:
                following = asyncio.create_task(follow(bus, settings))
                try:
                    yield Rig(server, admin)
                finally:
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)


def programs() -> list[str]:
    """The Python programs of the page."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


async def test_the_program_of_the_page_prints_the_ends_of_its_account(rig: Rig, tmp_path: Path) -> None:
    program, _ = programs()
    assert len([line for line in program.splitlines() if line.strip()]) <= 15
    path = tmp_path / "reader.py"
    path.write_text(program, encoding="utf-8")
    jobs = [await rig.ended("acme") for _ in range(3)]
    await rig.ended("other")

    async def read(number: int) -> list[str]:
        env = os.environ | {"ACCOUNT": "acme", "NATS_URL": rig.server.url, "NATS_PASSWORD": USERS["reader-acme"]}
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(path), env=env, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(60):
                return [(await process.stdout.readline()).decode().strip() for _ in range(number)]
        finally:
            process.kill()
            await process.wait()

    assert await read(3) == [f"{job_id} succeeded [0.5, 1.5]" for job_id in jobs]
    await rig.ended("other")
    later = await rig.ended("acme")
    lines = await read(1)
    while later not in lines[-1]:  # the last acknowledgement may not have left the process that was killed
        assert lines[-1].split()[0] in jobs
        lines = await read(1)


async def test_the_payload_that_an_end_names_is_read_as_the_page_says(rig: Rig) -> None:
    body = floats(*range(50_000), name="y")
    end = await rig.end("acme", await rig.ended("acme", body))
    assert end.outputs is not None
    ref = end.outputs.ref
    space: dict[str, object] = {}
    exec(programs()[1], space)  # noqa: S102  of our own page
    read = space["payload"]
    assert callable(read)
    user = "reader-acme"
    nc = await nats.connect(rig.server.url, user=user, password=USERS[user], inbox_prefix=f"_INBOX_{user}".encode())
    fields = {name: getattr(ref, name) for name in ("subject", "size", "chunks", "first_seq", "sha256")}
    assert await read(nc.jetstream(), user, fields) == body
    await nc.close()


async def test_a_reader_may_do_what_it_needs_for_its_own_account_and_nothing_else(rig: Rig) -> None:
    def of(account: str, number: int = 1) -> set[str]:
        name = f"reader-{account}-{number}"
        return {
            *(
                subject
                for stream, held in (("RESULTS", "results"), ("PAYLOADS", "pl"))
                for subject in (
                    f"{API}.CONSUMER.CREATE.{stream}.{name}.{held}.{account}.>",
                    f"{API}.CONSUMER.CREATE.{stream}.{name}.{held}.{account}.x.y",
                    f"{API}.CONSUMER.INFO.{stream}.{name}",
                    f"{API}.CONSUMER.DELETE.{stream}.{name}",
                    f"{API}.CONSUMER.MSG.NEXT.{stream}.{name}",
                    f"$JS.ACK.{stream}.{name}.1.1.1.1.0",
                )
            ),
        }

    own = of("acme") | of("acme", 4) | {f"{API}.DIRECT.GET.PAYLOADS.pl.acme.j.out1"}
    foreign = {
        *of("other"),
        *of("acme", 5),
        *of("acme-1"),
        f"{API}.CONSUMER.CREATE.RESULTS.reader-acme-1",
        f"{API}.CONSUMER.CREATE.RESULTS.reader-acme-1.results.>",
        f"{API}.CONSUMER.CREATE.RESULTS.reader-acme-1.results.other.>",
        f"{API}.CONSUMER.CREATE.RESULTS.reader-acme-1.results.*.m.*",
        f"{API}.CONSUMER.CREATE.RESULTS.reader-other-1.results.acme.>",
        f"{API}.CONSUMER.CREATE.PAYLOADS.reader-acme-1.pl.other.>",
        f"{API}.CONSUMER.CREATE.STATE.reader-acme-1.st.>",
        f"{API}.CONSUMER.DURABLE.CREATE.RESULTS.reader-acme-1",
        f"{API}.CONSUMER.LIST.RESULTS",
        f"{API}.CONSUMER.NAMES.RESULTS",
        f"{API}.CONSUMER.INFO.RESULTS.hook-1",
        f"{API}.CONSUMER.DELETE.RESULTS.hook-1",
        *(f"{API}.DIRECT.GET.{name}" for name in ("RESULTS", "PAYLOADS", "STATE")),
        f"{API}.DIRECT.GET.RESULTS.results.acme.m.j",
        f"{API}.DIRECT.GET.STATE.st.j",
        f"{API}.DIRECT.GET.PAYLOADS.pl.other.j.out1",
        *(f"{API}.STREAM.{act}.RESULTS" for act in ("MSG.GET", "MSG.DELETE", "PURGE", "INFO", "UPDATE", "DELETE")),
        "results.acme.m.j",
        "pl.acme.j.out1",
        "st.j",
        "cancel.j",
    }
    lines = [f"PUB {subject} 0\r\n\r\n".encode() for subject in sorted(own | foreign)]
    assert await refused(rig.server, "reader-acme", USERS["reader-acme"], lines) == foreign
    heard = {">", "results.>", "results.acme.>", "evt.results.acme.>", "_INBOX_reader-other.>", "_INBOX_reader-acme.>"}
    lines = [f"SUB {subject} {number}\r\n".encode() for number, subject in enumerate(sorted(heard), 1)]
    denied = await refused(rig.server, "reader-acme", USERS["reader-acme"], lines)
    assert heard - denied == {"_INBOX_reader-acme.>"}


async def test_a_consumers_filter_is_what_its_subject_says(rig: Rig) -> None:
    """The right is one to a subject; the server compares it with the filters in the request."""
    await rig.end("other", await rig.ended("other"))
    wire = Wire(nats_url=rig.server.url, nats_user="reader-acme", nats_password=USERS["reader-acme"])
    async with await Bus.connect(wire, role="reader-acme") as bus:
        subject = f"{API}.CONSUMER.CREATE.RESULTS.reader-acme-1.results.acme.>"
        for filters in (
            {"filter_subject": "results.other.>"},
            {"filter_subjects": ["results.acme.>", "results.other.>"]},
            {"filter_subjects": ["results.>"]},
            {},
        ):
            config = {"name": "reader-acme-1", "durable_name": "reader-acme-1", "ack_policy": "explicit", **filters}
            ask = {"stream_name": "RESULTS", "config": config, "action": ""}
            with pytest.raises(Exception, match="filter"):
                await bus.request_json(subject, ask)


async def test_what_a_reader_has_delivered_elsewhere_reaches_no_program_and_no_record(rig: Rig) -> None:
    """A consumer may deliver to any subject, without a right to it; the message keeps its own."""
    mark = await rig.admin.write(names.AUDIT_HEAD, b"the first")
    heard: list[str] = []
    targets = (names.NATS_FAULT, names.ask_release("GPU-1"), names.AUDIT_HEAD, "st.j")
    for target in targets[:2]:
        await rig.admin.subscribe(target, lambda message: heard.append(message.subject))
    delivered = asyncio.Queue[bytes]()
    rig.admin.connection.listen(names.NATS_FAULT, lambda subject, *_: delivered.put_nowait(subject))
    end = await rig.end("acme", await rig.ended("acme", floats(*range(5000), name="y")))
    assert end.outputs is not None
    wire = Wire(nats_url=rig.server.url, nats_user="reader-acme", nats_password=USERS["reader-acme"])
    async with await Bus.connect(wire, role="reader-acme") as bus:
        for stream, held in ((Stream.RESULTS, "results"), (Stream.PAYLOADS, "pl")):
            for number, target in reversed(list(enumerate(targets, 1))):
                name, wanted = f"reader-acme-{number}", f"{held}.acme.>"
                config = {"name": name, "filter_subject": wanted, "deliver_subject": target, "ack_policy": "none"}
                ask = {"stream_name": stream, "config": config, "action": ""}
                await bus.request_json(f"{API}.CONSUMER.CREATE.{stream}.{name}.{wanted}", ask)
        async with asyncio.timeout(60):
            came = {(await delivered.get()).split(b".")[0] for _ in range(2)}
    assert came == {b"results", b"pl"}
    await rig.admin.publish(names.NATS_FAULT, b"its own")
    await rig.admin.flush()
    assert heard == [names.NATS_FAULT]
    assert await last_sequence(rig.admin, Stream.AUDIT) == mark
    assert await rig.admin.leader_get(Stream.STATE, "st.j") is None


def test_odd_characters_are_written_alike_in_all_names_of_a_reader() -> None:
    allowed = reader_permissions("a.b")
    assert f"{API}.CONSUMER.CREATE.RESULTS.reader-a=2Eb-1.results.a=2Eb.>" in allowed.publish
    assert allowed.subscribe == ("_INBOX_reader-a=2Eb.>",)


def test_an_account_without_a_name_has_a_reader_of_its_own() -> None:
    allowed = reader_permissions("")
    assert f"{API}.CONSUMER.CREATE.RESULTS.reader--1.results.-.>" in allowed.publish
