"""A small railway: leases, presence, jobs and records as workers write them, without TensorFlow."""

import asyncio
import random
import time
import uuid
from collections import Counter

from signalbox.bus.client import Bus, Delivery, Puller
from signalbox.bus.table import put, remove
from signalbox.jobs import delivery, life
from signalbox.wire.jobids import new_job_id
from signalbox.wire.messages import ErrorInfo, Job, Record, header
from signalbox.wire.modeldocs import Limits, Model, Version
from signalbox.wire.names import Bucket, Header, Priority, Stream, job, state, ticket, token
from signalbox.wire.workerdocs import Device, Lease, Residency, Run, Ticket, Worker

TTL_S = 20
GPU = Device(id="CPU-1f0c2a9b-0", kind="cpu", name="cpu:0", memory_bytes=8 * 1024**3)
MODELS = {"digits": 2, "half_plus_two": 1, "large": 1}


def accepted(model: str, **more: object) -> Job:
    """A job as a gateway accepts it."""
    now = time.time()
    fields = {
        "id": new_job_id(now, uuid.uuid4().int),
        "model": model,
        "version": MODELS.get(model, 1),
        "signature": "serving_default",
        "account_id": "traffic",
        "created_at": now,
        "deadline_at": now + 900,
    }
    return Job(**fields | more)  # type: ignore[arg-type]


def accepted_in_turn(model: str, count: int) -> list[Job]:
    """Jobs accepted one after another: ids of one millisecond would have no order."""
    now = time.time()
    return [accepted(model, id=new_job_id(now + n / 100, uuid.uuid4().int)) for n in range(count)]


async def submit(bus: Bus, document: Job) -> None:
    """The acceptance itself."""
    subject = job(document.model, document.priority, document.account_id, document.id)
    await bus.grouped(Stream.JOBS).write(subject, b"frame", headers={Header.JOB: header(document)}, expect=0)


class Railway:
    """Two workers on one GPU, and who they work for."""

    def __init__(self, bus: Bus, *, seed: int = 1) -> None:
        self.bus = bus
        self.random = random.Random(seed)
        self.workers = ["worker-a", "worker-b"]
        self.started_at = time.time() - 4000
        self.holder = ""
        self.token = 0
        self.lease_rev = 0
        self.beats = 0
        self.since = 0.0
        self.done = dict.fromkeys(self.workers, 0)
        self.failed = 0
        self.running: dict[str, Job] = {}
        self.waiting: dict[str, int] = {}
        self.queue: asyncio.Queue[Delivery] = asyncio.Queue()

    async def lay_track(self, models: dict[str, int] | None = None) -> None:
        """Models."""
        for name, version in (models or MODELS).items():
            await put(
                self.bus,
                Bucket.MODELS,
                token(name),
                Model(
                    name=name,
                    versions=(Version(version=version, path=f"/models/{name}"),),
                    default_version=version,
                    replicas=0 if name == "large" else 2,
                    limits=Limits(),
                    updated_at=time.time(),
                ),
            )

    async def presence(self, worker: str) -> None:
        """One heartbeat."""
        is_holder = worker == self.holder
        await put(
            self.bus,
            Bucket.WORKERS,
            token(worker),
            Worker(
                id=worker,
                boot="b1",
                host="signal-north/boot",
                pid=4000 + len(worker),
                state="ready",
                device=GPU,
                started_at=self.started_at,
                beat_at=time.time(),
                token=self.token if is_holder else 0,
                waiting_since=None if is_holder else time.time() - 3,
                models=tuple(
                    Residency(model=m, version=v, state="ready", size_bytes=18_000_000)
                    for m, v in MODELS.items()
                    if m != "large"
                )
                if is_holder
                else (),
                running=tuple(self.running)[:32] if is_holder else (),
                rates={"digits": 40.0} if is_holder else {},
                done=self.done[worker],
                failed=self.failed,
                rss_bytes=61_000_000,
                software="signalbox 0.1",
                run=self._run() if is_holder else None,
                waiting=self.waiting if is_holder else {},
                in_flight=Counter(document.model for document in self.running.values()) + Counter(self.waiting)
                if is_holder
                else {},
            ),
            ttl_s=30,
        )

    def _run(self) -> Run | None:
        first = next(iter(self.running.values()), None)
        if first is None:
            return None
        return Run(
            activity="computing",
            model=first.model,
            version=first.version,
            jobs=tuple(self.running)[:32],
            since=time.time(),
            expected_s=0.1,
        )

    async def acquire(self, worker: str) -> int:
        """Takes the free lease; returns the token."""
        self.holder, self.beats, self.since = worker, 0, time.time()
        self.token = 0
        self.lease_rev = await self._lease()
        self.token = self.lease_rev
        await remove(self.bus, Bucket.WAITERS, ticket(GPU.id, worker))
        return self.token

    async def renew(self) -> None:
        """One heartbeat of the lease."""
        self.beats += 1
        self.lease_rev = await self._lease()

    async def release(self, next_worker: str) -> None:
        """Hands over."""
        self.holder = ""
        self.lease_rev = await put(
            self.bus,
            Bucket.LEASES,
            token(GPU.id),
            Lease(state="FREE", gpu=GPU.id, next=next_worker, reserved_s=2.0, last_token=self.token),
            expect=self.lease_rev,
        )

    async def queue_up(self, worker: str) -> None:
        """A ticket."""
        await put(
            self.bus,
            Bucket.WAITERS,
            ticket(GPU.id, worker),
            Ticket(gpu=GPU.id, worker=worker, boot="b1", since=time.time()),
            ttl_s=60,
        )

    async def pull(self, model: str, priority: Priority = "mid") -> Puller:
        """A puller on one queue, whose deliveries come into ``queue``."""
        found = await delivery.find(self.bus, model, priority, 0)
        return await self.bus.pull(found.name, self.queue.put_nowait)

    async def claim(self, document: Job) -> tuple[Record, int]:
        """The holder's claim of a job; its record, and the revision of it."""
        claimed = life.claimed(document, None, worker=self.holder, gpu=GPU.id, token=self.token, now=time.time())
        return claimed, await self.bus.write(state(document.id), headers={Header.RECORD: header(claimed)}, expect=0)

    async def end(self, claimed: Record, revision: int) -> None:
        """A success; the job's message stays, as until the reconciler's next turn."""
        ended = self._succeeded(claimed)
        await self.bus.write(state(claimed.id), b"out", headers={Header.RECORD: header(ended)}, expect=revision)

    def _succeeded(self, claimed: Record) -> Record:
        return life.succeeded(claimed, now=time.time(), batch=self.random.choice([1, 4, 8]), size_bytes=80)

    async def run_one(self, pulled: Delivery) -> None:
        """Claim, run, commit, and remove the message, as the reconciler does."""
        document = pulled.job
        self.running[document.id] = document
        claimed, revision = await self.claim(document)
        await asyncio.sleep(self.random.uniform(0.01, 0.12))
        if self.random.random() < 0.04:
            ended = life.failed(
                claimed,
                ErrorInfo(code="model_error", message="Input x: expected [?, 28, 28], got [3]."),
                now=time.time(),
            )
            self.failed += 1
        else:
            ended = self._succeeded(claimed)
        await self.bus.write(state(document.id), b"out", headers={Header.RECORD: header(ended)}, expect=revision)
        await self.bus.request_json(f"$JS.API.STREAM.MSG.DELETE.{Stream.JOBS}", {"seq": pulled.seq})
        self.running.pop(document.id, None)
        self.done[claimed.worker] += 1

    async def _lease(self) -> int:
        return await put(
            self.bus,
            Bucket.LEASES,
            token(GPU.id),
            Lease(
                state="HELD",
                gpu=GPU.id,
                owner=self.holder,
                boot="b1",
                host="signal-north",
                pid=77,
                token=self.token,
                since=self.since,
                beats=self.beats,
                last_token=self.token,
            ),
            expect=self.lease_rev or None,
            ttl_s=TTL_S,
        )
