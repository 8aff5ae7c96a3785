"""What events cannot tell is healed: lost documents, vanished jobs, rows left behind."""

import asyncio
import gc
import json
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.accounts.rights import system_actor
from console.catalog import registration
from console.catalog.models import ModelVersion, ServedModel
from console.controller import readiness
from console.controller import reconciler as module
from console.controller.reconciler import DECIDED, ConsoleReconciler
from console.deletion import wholemodels as deletion
from console.fleet import services as fleet
from console.jobs.fold import JobMessage
from console.jobs.models import Job
from console.keys import services as keys
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from console.projector import store
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.jobs import life
from signalbox.jobs.records import Records
from signalbox.wire import jobids, keydocs, messages, modeldocs, names, workerdocs
from signalbox.wire.events import is_removal
from signalbox.wire.messages import State
from signalbox.wire.names import Bucket, Header
from tests.console.conftest import in_thread
from tests.console.test_jobs import make
from tests.console.test_projector import NOW, accept, accepted, run_job
from tests.rigs.presence import presence
from workers.recovery.reconciler import JobReconciler as WorkersReconciler

pytestmark = pytest.mark.django_db(transaction=True)
ME = system_actor("tests")


def reconciler(bus: Bus) -> ConsoleReconciler:
    """One that looks at every open job, however young."""
    return ConsoleReconciler(bus, every_s=60, vanished_after_s=0, clock=lambda: NOW + 300)


async def know(*jobs: messages.Job) -> None:
    """Rows as the projector makes them from acceptances."""
    received = [JobMessage.accepted(job, job.created_at) for job in jobs]
    await in_thread(store.write, received)


async def test_documents_that_nats_lost_are_posted_again(bus: Bus) -> None:
    key, _ = await in_thread(keys.create, ME, keys.KeyGrant(name="a"))
    await in_thread(make, 1, worker="w1")
    await in_thread(lambda: fleet.drain(ME, "w1", is_draining=True, reason="heat"))
    publisher = Publisher(bus, 5)
    await publisher.publish_due()
    assert await reconciler(bus).repost_lost_documents() == 0
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Bucket.KEYS.stream}")
    assert await reconciler(bus).repost_lost_documents() == 1
    await publisher.publish_due()
    stored = await bus.leader_get(Bucket.KEYS.stream, names.key(Bucket.KEYS, key.id))
    assert stored is not None
    assert messages.decode(keydocs.ApiKey, stored.data).hmac == key.hmac


async def test_a_document_changed_by_hand_is_put_right(bus: Bus) -> None:
    key, _ = await in_thread(keys.create, ME, keys.KeyGrant(name="a"))
    publisher = Publisher(bus, 5)
    await publisher.publish_due()
    forged = messages.encode(keydocs.ApiKey(id=key.id, account_id=key.id, hmac="0" * 64, scopes=("jobs:submit",)))
    await bus.write(names.key(Bucket.KEYS, key.id), forged)
    assert await reconciler(bus).repost_lost_documents() == 1
    assert await reconciler(bus).repost_lost_documents() == 0  # it waits in the outbox already
    await publisher.publish_due()
    stored = await bus.leader_get(Bucket.KEYS.stream, names.key(Bucket.KEYS, key.id))
    assert stored is not None
    assert messages.decode(keydocs.ApiKey, stored.data).hmac == key.hmac
    assert not await in_thread(OutboxEntry.objects.filter(published_at=None).exists)


async def test_a_deleted_model_is_removed_from_nats_and_stays_so_whatever_is_restored_there(bus: Bus) -> None:
    await in_thread(lambda: ServedModel.objects.create(name="m", base_path="/m"))
    publisher = Publisher(bus, 5)
    assert await reconciler(bus).repost_lost_documents() == 1
    await publisher.publish_due()
    subject = names.key(Bucket.MODELS, "m")
    before = await bus.leader_get(Bucket.MODELS.stream, subject)
    assert before is not None
    await in_thread(deletion.delete_model, ME, "m")
    await publisher.publish_due()
    stored = await bus.leader_get(Bucket.MODELS.stream, subject)
    assert stored is not None
    assert is_removal(stored.headers)
    assert await reconciler(bus).repost_lost_documents() == 0
    await bus.write(subject, before.data)
    assert await reconciler(bus).repost_lost_documents() == 1
    await publisher.publish_due()
    stored = await bus.leader_get(Bucket.MODELS.stream, subject)
    assert stored is not None
    assert is_removal(stored.headers)
    await in_thread(deletion.undo_model, ME, "m")
    await publisher.publish_due()
    stored = await bus.leader_get(Bucket.MODELS.stream, subject)
    assert stored is not None
    assert messages.decode(modeldocs.Model, stored.data).name == "m"
    assert await reconciler(bus).repost_lost_documents() == 0


async def test_documents_are_compared_some_at_a_time(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPARED_AT_ONCE", 2)
    for number in range(5):
        await in_thread(lambda n=number: ServedModel.objects.create(name=f"m.{n}", base_path="/m"))
        await in_thread(keys.create, ME, keys.KeyGrant(name=f"k{number}"))
        await in_thread(lambda n=number: fleet.pause(ME, f"m.{n}", is_paused=True, reason="heat"))
    publisher = Publisher(bus, 5)
    assert await reconciler(bus).repost_lost_documents() == 5, "what was never posted; the rest waits in the outbox"
    await publisher.publish_due()
    assert await reconciler(bus).repost_lost_documents() == 0
    lost = names.key(Bucket.MODELS, names.token("m.4"))
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Bucket.MODELS.stream}", {"filter": lost})
    stale = names.key(Bucket.MODELS, names.token("m.2"))
    await bus.write(stale, messages.encode(modeldocs.Model(name="m.2", replicas=7)))
    paused = names.key(Bucket.DESIRED, fleet.desired_key("model", "m.3"))
    await bus.write(paused, headers={Header.KV_OPERATION: "PURGE"})
    assert await reconciler(bus).repost_lost_documents() == 3
    await publisher.publish_due()
    assert await reconciler(bus).repost_lost_documents() == 0


async def test_what_was_compared_is_gone_before_more_is_read(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPARED_AT_ONCE", 2)
    for number in range(5):
        await in_thread(lambda n=number: ServedModel.objects.create(name=f"m.{n}", base_path="/m"))
    read, alive = module._next_keys, []

    async def reading(bucket: Bucket, after: object) -> dict[object, str]:
        alive.append(sum(type(one) is ServedModel for one in gc.get_objects()))
        return await read(bucket, after)

    monkeypatch.setattr(module, "_next_keys", reading)
    gc.collect()
    gc.disable()
    try:
        assert await reconciler(bus).repost_lost_documents() == 5
    finally:
        gc.enable()
    assert len(alive) > 5
    assert not any(alive)


async def test_nothing_is_compared_while_neither_a_bucket_nor_a_decision_moves(bus: Bus, base: Path) -> None:
    listed: list[str] = []

    class Listening(ConsoleReconciler):
        async def _compare(self, bucket: Bucket) -> int:
            listed.append(bucket.value)
            return await super()._compare(bucket)

    await in_thread(keys.create, ME, keys.KeyGrant(name="a"))
    await in_thread(registration.register, ME, "digits", str(base))
    publisher = Publisher(bus, 5)
    await publisher.publish_due()
    idle = Listening(bus, every_s=60, vanished_after_s=120)
    everything = [bucket.value for bucket in DECIDED]
    for expected in (everything, []):
        await idle.repost_lost_documents()
        assert listed == expected
        listed.clear()
    await in_thread(lambda: fleet.pause(ME, "digits", is_paused=True, reason="heat"))
    await idle.repost_lost_documents()
    assert listed == everything, "a decision"
    await publisher.publish_due()
    await idle.repost_lost_documents()
    listed.clear()
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Bucket.KEYS.stream}")
    assert await idle.repost_lost_documents() == 1, "a bucket that lost what it held"
    assert listed == everything


async def test_a_job_whose_message_vanished_ends_as_failed_for_everybody(
    bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    vanished, waiting = accepted(1), accepted(2)
    await accept(bus, waiting)
    await know(vanished, waiting)
    assert await reconciler(bus).settle_vanished_jobs() == 1
    found = await Records(bus).read(vanished.id)
    assert found is not None
    assert found[0].state is State.FAILED
    assert await in_thread(lambda: Job.objects.get(pk=vanished.id).state) == "failed"
    assert await in_thread(lambda: Job.objects.get(pk=waiting.id).state) == "queued"
    assert await Records(bus).read(waiting.id) is None
    reported = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    events = [line["event"] for line in reported if line.get("job") == vanished.id]
    assert {"reconciler.job_lost", "job.ended"} <= set(events)


async def test_a_job_whose_record_may_have_aged_out_gets_no_second_end(bus: Bus) -> None:
    """As after more than a day without the console: its caller was told its end long ago."""
    job = accepted(1)
    await know(job)
    late = ConsoleReconciler(bus, every_s=60, vanished_after_s=0, clock=lambda: NOW + 25 * 3600)
    assert await late.settle_vanished_jobs() == 1
    assert await Records(bus).read(job.id) is None
    row = await in_thread(Job.objects.get, pk=job.id)
    assert row.state == "failed"
    assert "no longer knows how this job ended" in row.error_message


async def test_a_synchronous_call_whose_short_lived_record_went_gets_no_second_end(bus: Bus) -> None:
    """Its record goes before older ones: that one of these is still there says nothing."""
    await run_job(bus, accepted(1))
    job = accepted(2, id=jobids.new_job_id(NOW, 2, is_short_lived=True), created_at=time.time() + 5)
    await know(job)
    late = ConsoleReconciler(bus, every_s=60, vanished_after_s=0, clock=lambda: NOW + 700)
    assert await late.settle_vanished_jobs() == 1
    assert await Records(bus).read(job.id) is None
    row = await in_thread(Job.objects.get, pk=job.id)
    assert "no longer knows how this job ended" in row.error_message


async def test_jobs_that_wait_do_not_hide_one_that_vanished(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    waiting = [accepted(n) for n in (1, 2, 3)]
    for job in waiting:
        await accept(bus, job)
    vanished = accepted(4, created_at=NOW + 1)
    await know(*waiting, vanished)
    patient = reconciler(bus)
    ended = [await patient.settle_vanished_jobs() for _ in range(3)]
    assert ended == [0, 1, 0], "a round goes on where the one before it ended, then from the beginning"
    assert await in_thread(lambda: Job.objects.get(pk=vanished.id).state) == "failed"


@pytest.mark.parametrize("state", [State.RUNNING, State.QUEUED])
async def test_a_job_with_an_open_record_is_shown_and_ended_by_workers_only(bus: Bus, state: State) -> None:
    ref = messages.PayloadRef(subject="pl.a.x.in", size=1, chunks=1, first_seq=1, sha256="0" * 64)
    job = accepted(1, ref=ref)
    record = life.claimed(job, None, worker="w1", gpu="GPU-1", token=7, now=NOW + 0.1)
    if state is State.QUEUED:
        why = messages.ErrorInfo(code="unavailable", message="The worker was stopped.")
        record = life.requeued(record, why, now=time.time())
    revision = await Records(bus).write(record, expect=0)  # and no message in the queue
    await know(job)
    for _ in range(2):
        await reconciler(bus).settle_vanished_jobs()
    assert await Records(bus).read(job.id) == (record, revision, b"")
    assert await in_thread(lambda: Job.objects.get(pk=job.id).state) == state.value
    rescuer = WorkersReconciler(
        bus,
        Records(bus),
        workers=list,
        models=dict,
        worker="w2",
        boot="b2",
        settled_s=-1_000_000_000,
        clock=lambda: NOW + 60,
    )
    assert await rescuer.turn()
    queued = await Records(bus).queued(job.id)
    assert queued is not None
    assert messages.decode(messages.Job, queued.headers[Header.JOB]).ref == ref


async def test_a_record_of_a_newer_program_is_left_alone_and_hides_no_job_that_vanished(bus: Bus) -> None:
    newer, vanished = accepted(1), accepted(2, created_at=NOW + 1)
    record = replace(life.first_record(newer, State.QUEUED), v=messages.VERSION + 1)
    await bus.write(names.state(newer.id), headers={Header.RECORD: messages.header(record)}, expect=0)
    await know(newer, vanished)
    assert await reconciler(bus).settle_vanished_jobs() == 1
    assert await in_thread(lambda: Job.objects.get(pk=newer.id).state) == "queued"
    assert await in_thread(lambda: Job.objects.get(pk=vanished.id).state) == "failed"


async def test_a_row_left_behind_catches_up_with_its_record(bus: Bus) -> None:
    job = accepted(1)
    await accept(bus, job)
    await know(job)
    await run_job(bus, job)
    assert await reconciler(bus).settle_vanished_jobs() == 1
    assert await in_thread(lambda: Job.objects.get(pk=job.id).state) == "succeeded"
    assert await reconciler(bus).settle_vanished_jobs() == 0


async def test_young_jobs_are_left_alone(bus: Bus) -> None:
    await know(accepted(1, created_at=time.time()))
    patient = ConsoleReconciler(bus, every_s=60, vanished_after_s=120)
    assert await patient.settle_vanished_jobs() == 0


async def test_the_first_time_that_a_worker_has_a_version_in_memory_is_noted(bus: Bus, base: Path) -> None:
    await in_thread(registration.register, ME, "digits", str(base))
    part = asyncio.create_task(readiness.keep_noted(bus))

    async def noted(number: int) -> None:
        async with asyncio.timeout(60):
            while not await in_thread(ModelVersion.objects.filter(number=number).exclude(first_ready_at=None).exists):
                pass

    def held(*versions: tuple[int, str]) -> workerdocs.Worker:
        return presence(
            "w", models=tuple(workerdocs.Residency(model="digits", version=n, state=s) for n, s in versions)
        )

    try:
        await put(bus, Bucket.WORKERS, names.token("w"), held((1, "failed"), (2, "spare")))
        await noted(2)
        assert await in_thread(ModelVersion.objects.filter(first_ready_at=None).get) == await in_thread(
            ModelVersion.objects.get, number=1
        )
        first = (await in_thread(ModelVersion.objects.get, number=2)).first_ready_at
        await put(bus, Bucket.WORKERS, names.token("w"), held((1, "ready")))
        await noted(1)
        await put(bus, Bucket.WORKERS, names.token("w"), held((2, "ready")))
        assert (await in_thread(ModelVersion.objects.get, number=2)).first_ready_at == first
    finally:
        part.cancel()
        await asyncio.wait([part])


async def test_a_version_that_has_answered_a_job_was_in_memory_once(bus: Bus, base: Path) -> None:
    """The controller was away meanwhile."""
    await in_thread(registration.register, ME, "digits", str(base))
    await in_thread(make, 1, model="digits", version=2, state=State.SUCCEEDED.value)
    await in_thread(make, 2, model="digits", version=1, state=State.FAILED.value)
    await in_thread(readiness.note_answered)
    (found,) = await in_thread(lambda: list(ModelVersion.objects.exclude(first_ready_at=None)))
    assert found.number == 2


async def test_a_delayed_job_has_no_message_and_is_not_vanished(bus: Bus) -> None:
    record = life.first_record(accepted(1, not_before=NOW + 1e6), State.QUEUED)
    revision = await Records(bus).write(record, expect=0)
    await know(accepted(1))
    for _ in range(2):
        await reconciler(bus).settle_vanished_jobs()
    assert await Records(bus).read(record.id) == (record, revision, b"")
    assert await in_thread(lambda: Job.objects.get(pk=record.id).state) == "queued"
