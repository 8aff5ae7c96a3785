"""Dead letters on a real nats-server: kept with their inputs, read, redriven once, discarded."""

import asyncio
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.jobs import deadletters, payloads
from signalbox.program import metrics
from signalbox.program.errors import Conflict, InputLost, NotFound, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import jobids, names, tensors
from signalbox.wire.assets import MIB, STREAMS
from signalbox.wire.messages import DeadLetter, ErrorInfo, Job, decode
from signalbox.wire.modeldocs import Limits, Model, Version
from signalbox.wire.names import Bucket, Header, Stream
from signalbox.wire.poison import Poison
from signalbox.wire.roles import ROLES
from tests.integration.signalbox.test_core_cli import run
from tests.rigs.natsserver import NatsServer
from tests.rigs.submit import floats

WHY = ErrorInfo(code="poison", message="It was run 3 times alone.")
PASSWORDS: dict[str, str] = {role: f"secret of {role}" for role in ROLES}


def frame_of(size: int) -> bytes:
    """A frame of one uint8 tensor of random bytes."""
    return tensors.encode([tensors.Tensor("x", "uint8", (size,), os.urandom(size))])


async def dead(
    bus: Bus, frame: bytes, *, gateway: Bus | None = None, notice: DeadLetter | None = None, **more: Any
) -> Job:
    """A job a worker has given up; what is above 256 KiB is claim-checked, as a gateway does it."""
    now = time.time()
    fields: dict[str, Any] = {"model": "half", "account_id": "shop", "key_id": "till"} | more
    job = Job(
        id=jobids.new_job_id(now, uuid.uuid4().int),
        version=1,
        signature="serving_default",
        created_at=now - 99,
        deadline_at=now - 9,
        reply="rsp.g.j",
        size_bytes=len(frame),
        **fields,
    )
    if len(frame) > 256 * 1024:
        job = replace(job, ref=(await payloads.store_input(gateway or bus, job, frame)).ref)
    notice = notice or DeadLetter(error=WHY, attempt=3, strikes=3, worker="w1", gpu="GPU-1")
    await deadletters.keep(bus, job, frame if job.ref is None else b"", notice)
    return job


async def enable(bus: Bus, **more: Any) -> None:
    """The model, as the console publishes it."""
    fields: dict[str, Any] = {"versions": (Version(version=1, path="/m/1"),)} | more
    model = Model(name="half", limits=Limits(deadline_s=600), **fields)
    await put(bus, Bucket.MODELS, "half", model)


def not_kept(reason: str) -> float:
    """Inputs counted as not kept."""
    labels = {"reason": reason}
    name = "signalbox_dead_letter_inputs_not_kept_total"
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


async def messages_in(bus: Bus, stream: Stream) -> int:
    count: int = (await bus.request_json(f"$JS.API.STREAM.INFO.{stream}"))["state"]["messages"]
    return count


@pytest.mark.parametrize("size", [100, 300_000, 1_500_000])
async def test_a_letter_keeps_its_input_when_the_payloads_of_its_job_are_gone(bus: Bus, size: int) -> None:
    frame = frame_of(size)
    job = await dead(bus, frame)
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.INPUTS}")  # as after the job's end
    letter = await deadletters.find(bus, job.id)
    assert await deadletters.input_of(bus, letter) == frame
    assert letter.job == job
    assert letter.size_bytes == len(frame)
    assert letter.notice is not None
    assert (letter.notice.error, letter.notice.attempt, letter.notice.worker) == (WHY, 3, "w1")
    (described,) = deadletters.described(frame)
    assert described == {"name": "x", "dtype": "uint8", "shape": [size]}


async def test_a_letter_whose_input_had_gone_says_so_and_is_not_redriven(bus: Bus) -> None:
    await enable(bus)
    late = Job(
        id=jobids.new_job_id(time.time(), uuid.uuid4().int),
        model="half",
        version=1,
        signature="s",
        account_id="shop",
        created_at=0.0,
        deadline_at=0.0,
    )
    ref = (await payloads.store_input(bus, late, b"x" * 10)).ref
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.INPUTS}")
    late = replace(late, ref=ref)
    await deadletters.keep(bus, late, b"", DeadLetter(error=WHY))
    letter = await deadletters.find(bus, late.id)
    assert letter.notice is not None
    assert "aged out" in letter.notice.not_kept
    assert letter.input_is == "lost"
    with pytest.raises(InputLost, match="aged out"):
        await deadletters.redrive(bus, late.id)
    assert await messages_in(bus, Stream.JOBS) == 0


async def test_other_accounts_inputs_are_no_part_of_the_share_of_a_job_without_one(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.DLQ_PARTS}")
    share = 2 * MIB / info["config"]["max_bytes"]
    monkeypatch.setattr(deadletters, "ACCOUNT_SHARE", share)
    for _ in range(2):
        await dead(bus, frame_of(900_000))
    last = await dead(bus, frame_of(900_000), account_id="")
    assert (await deadletters.find(bus, last.id)).input_is == "kept"


async def test_kept_inputs_are_bounded_together_and_an_account_has_its_share(bus: Bus) -> None:
    declared = next(c for c in STREAMS if c["name"] == Stream.DLQ_PARTS)
    small = topology.wanted(declared, 1) | {"max_bytes": 8 * MIB}
    await bus.request_json(f"$JS.API.STREAM.UPDATE.{Stream.DLQ_PARTS}", small)
    kept: dict[str, list[str]] = {}
    before = [not_kept(reason) for reason in ("share", "room")]
    for account in ("flood", "flood", "flood", "a", "b", "c", "d", "e", "f", "g"):
        job = await dead(bus, frame_of(MIB), account_id=account)
        letter = await deadletters.find(bus, job.id)
        assert letter.notice is not None
        kept.setdefault(account, []).append(letter.notice.not_kept)
    assert kept["flood"][0] == ""
    assert "share" in kept["flood"][-1]
    assert kept["a"] == kept["b"] == [""], "the flood has left room for others"
    assert "no room" in kept["g"][0], "and together they are bounded"
    held = (await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.DLQ_PARTS}"))["state"]["bytes"]
    assert held <= deadletters.FILLED * 8 * MIB
    assert not_kept("share") == before[0] + sum("share" in why for why in kept["flood"])
    assert not_kept("room") > before[1]
    assert await messages_in(bus, Stream.DLQ) == 10, "every letter itself is there"


async def test_letters_come_in_bounded_pages_the_oldest_first(bus: Bus) -> None:
    jobs = [await dead(bus, floats(float(n)), model="half" if n % 2 else "other") for n in range(7)]
    first = await deadletters.page(bus, size=3)
    assert first.after is not None
    second = await deadletters.page(bus, after=first.after, size=4)
    assert [x.id for x in (*first.letters, *second.letters)] == [job.id for job in jobs]
    assert second.after is None
    of_one = await deadletters.page(bus, model="half")
    assert [letter.id for letter in of_one.letters] == [job.id for job in jobs[1::2]]
    assert (await deadletters.page(bus, model="none")).letters == []


async def test_a_page_ends_where_its_letters_would_take_too_many_bytes(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadletters, "PAGE_BYTES", 250_000)
    jobs = [await dead(bus, frame_of(100_000)) for _ in range(7)]
    found: list[str] = []
    sizes: list[int] = []
    after: int | None = 0
    while after is not None:
        page = await deadletters.page(bus, after=after, size=100)
        found += [letter.id for letter in page.letters]
        sizes.append(len(page.letters))
        after = page.after
    assert found == [job.id for job in jobs]
    assert max(sizes) <= 3


async def test_a_redrive_is_a_new_job_of_the_same_account_that_names_the_old_one(bus: Bus) -> None:
    await enable(bus)
    for frame in (floats(1.0), frame_of(400_000)):
        old = await dead(bus, frame, priority="hi", batch_key="all", outputs=("y",))
        done = await deadletters.redrive(bus, old.id)
        assert done.is_new
        queued = await bus.leader_get(Stream.JOBS, names.job("half", "hi", old.account_id, done.job_id))
        assert queued is not None
        new = decode(Job, queued.headers[Header.JOB])
        assert new.redrive_of == old.id != new.id
        assert (new.account_id, new.key_id) == ("shop", "till")
        assert (new.version, new.batch_key, new.outputs) == (1, "all", ("y",))
        assert new.reply == ""
        assert 590 < new.deadline_at - time.time() <= 600, "the deadline its model gives"
        assert (queued.data if new.ref is None else await payloads.fetch(bus, new.ref)) == frame
        letter = await deadletters.find(bus, old.id)
        assert letter.redriven is not None
        assert letter.redriven.job == new.id
        if new.ref is not None:
            assert new.ref.subject == names.job_input("shop", new.id, new.ref.size), "its own"


async def test_asking_twice_for_a_redrive_makes_one_job(bus: Bus) -> None:
    await enable(bus)
    old = await dead(bus, floats(1.0))
    both = await asyncio.gather(*(deadletters.redrive(bus, old.id) for _ in range(2)))
    assert len({done.job_id for done in both}) == 1
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.JOBS}")  # it has run and ended
    again = await deadletters.redrive(bus, old.id)
    assert again == deadletters.Redrive(both[0].job_id, is_new=False)
    assert await messages_in(bus, Stream.JOBS) == 0


async def test_once_more_is_said_by_naming_the_redrive_before(bus: Bus) -> None:
    await enable(bus)
    old = await dead(bus, floats(1.0))
    first = (await deadletters.redrive(bus, old.id)).job_id
    second = await deadletters.redrive(bus, old.id, after=first)
    assert second.is_new
    assert second.job_id != first
    assert not (await deadletters.redrive(bus, old.id, after=first)).is_new
    with pytest.raises(Conflict, match=second.job_id):
        await deadletters.redrive(bus, old.id)
    assert await messages_in(bus, Stream.JOBS) == 2


async def test_a_redrive_lifts_the_quarantine_of_its_input(bus: Bus) -> None:
    await enable(bus)
    frame = frame_of(400_000)
    old = await dead(bus, frame)
    assert old.ref is not None
    key = names.poison("half", old.version, old.ref.sha256)
    await put(bus, Bucket.POISON, key, Poison(model="half", sha256=old.ref.sha256, job=old.id), ttl_s=3600)
    await deadletters.redrive(bus, old.id)
    mark = await bus.leader_get(Bucket.POISON.stream, names.key(Bucket.POISON, key))
    assert mark is None or mark.headers.get(Header.KV_OPERATION) == "PURGE"


@pytest.mark.parametrize(
    ("model", "said"), [({"is_enabled": False}, "not enabled"), ({"versions": ()}, "no longer serves version 1")]
)
async def test_what_nobody_would_run_is_not_redriven(bus: Bus, model: dict[str, Any], said: str) -> None:
    await enable(bus, **model)
    old = await dead(bus, floats(1.0))
    with pytest.raises(Conflict, match=said):
        await deadletters.redrive(bus, old.id)
    assert await messages_in(bus, Stream.JOBS) == 0


async def test_a_discarded_letter_takes_its_input_with_it_and_leaves_others(bus: Bus) -> None:
    await enable(bus)
    gone, stays = await dead(bus, frame_of(600_000)), await dead(bus, frame_of(600_000))
    await deadletters.redrive(bus, gone.id)
    await deadletters.discard(bus, gone.id)
    with pytest.raises(NotFound):
        await deadletters.find(bus, gone.id)
    with pytest.raises(NotFound):
        await deadletters.discard(bus, gone.id)
    letter = await deadletters.find(bus, stays.id)
    assert len(await deadletters.input_of(bus, letter)) == letter.size_bytes
    left = await bus.list_latest(Stream.DLQ_PARTS, ["dlp.>"])
    assert {stored.subject for stored in left} == {names.kept_input("shop", stays.id)}


async def test_the_console_s_user_may_do_all_of_it(tmp_path: Any) -> None:
    async with NatsServer(tmp_path / "nats", users=PASSWORDS) as server:

        async def as_role(role: str) -> Bus:
            wire = Wire(nats_url=server.url, nats_user=role, nats_password=PASSWORDS[role])
            return await Bus.connect(wire, role=role)

        admin = await as_role("admin")
        await topology.apply(admin)
        await enable(admin)
        worker, console = await as_role("worker"), await as_role("console")
        old = await dead(worker, frame_of(400_000), gateway=admin)
        assert [letter.id for letter in (await deadletters.page(console)).letters] == [old.id]
        assert (await deadletters.redrive(console, old.id)).is_new
        await deadletters.discard(console, old.id)
        for bus in (admin, worker, console):
            await bus.close()


async def test_a_payload_that_cannot_be_stored_is_refused_in_our_words(bus: Bus) -> None:
    await bus.request_json(f"$JS.API.STREAM.DELETE.{Stream.PAYLOADS}")
    with pytest.raises(Unavailable):
        await payloads.store(bus, "shop", str(uuid.uuid4()), "out1", b"x" * 1_200_000)


async def test_an_operator_lists_shows_redrives_and_discards_from_a_shell(
    bus: Bus, nats: NatsServer, tmp_path: Path
) -> None:
    env = {"SIGNALBOX_NATS_URL": nats.url}
    assert await run("dead", "list", **env) == (0, "no dead letters\n", "")
    await enable(bus)
    frame = frame_of(400_000)
    old, other = await dead(bus, frame), await dead(bus, floats(1.0))
    _, listed, _ = await run("dead", "list", "--limit", "1", **env)
    first, more = listed.splitlines()
    assert f"{old.id} half poison 0.38 MiB kept" in first
    _, rest, _ = await run("dead", "list", "--json", *more.removeprefix("more: ").split(), **env)
    assert [letter["id"] for letter in json.loads(rest)["letters"]] == [other.id]
    saved = tmp_path / "input"
    _, shown, _ = await run("dead", "show", old.id, "--save", str(saved), **env)
    assert "message: It was run 3 times alone.\n" in shown
    assert "input x: uint8 [400000]\n" in shown
    assert saved.read_bytes() == frame
    assert saved.stat().st_mode & 0o777 == 0o600
    new = deadletters.redriven_id(await deadletters.find(bus, old.id))
    assert (await run("dead", "redrive", old.id, **env))[1] == f"queued as job {new}\n"
    assert (await run("dead", "redrive", old.id, **env))[1] == f"was redriven before as job {new}\n"
    assert (await run("dead", "discard", old.id, **env))[:2] == (0, "discarded\n")
    status, _, said = await run("dead", "show", old.id, **env)
    assert status == 2
    assert said.startswith("signalbox: There is no dead letter of a job")
