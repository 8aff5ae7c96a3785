"""Recovers orphaned deliveries: naks at once the jobs that a dead holder or a lost connection had in flight.

Otherwise they would wait for ``ack_wait``. The worker that takes a GPU over asks each of its queues for
deliveries that are not acknowledged, and naks, in the dead holder's name, those that are provably that
holder's:

- the job's record says ``running`` on this GPU under an older token: its holder is gone, for this
  worker holds the lease and the lock; or under the present token without being in flight here: its
  delivery was lost with a connection to NATS;
- or the job has no record yet and this GPU is the model's only home, so that no other worker can have it.

A delivery whose record has ended is acknowledged: that may have died with its holder.

Handing back is safe even if wrong: the job is merely delivered once more, and the compare-and-set on
its record lets one attempt win. What cannot be proven waits for ``ack_wait``.

Until NATS notices that a dead worker's connection is gone, it delivers to that worker's parked pull requests,
also jobs that were just nak'ed. So each model is looked at once more when those have expired. See ADR 0030.
"""

import asyncio
import base64
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from signalbox.bus.client import Bus
from signalbox.bus.connection import parse_headers
from signalbox.jobs.records import Records
from signalbox.program import log
from signalbox.program.errors import NewerVersion, NotFound, SignalboxError
from signalbox.wire import names
from signalbox.wire.messages import Job, Model, State, decode
from signalbox.wire.names import PRIORITIES, Header, Priority, Stream
from workers.host import gauges
from workers.host.fleet import FleetTables
from workers.queue.intake import PARKED_S

AGAIN_S: Final = PARKED_S + 1.0
"""From a first look to the second: by then whatever was parked before the first has expired on the server."""
MAX_LOOKS: Final = 2_000
"""Most messages looked at in one queue; what lies behind them waits for ``ack_wait``."""


class Acknowledgement(Enum):
    """What the queue is told of a delivery."""

    ACK = b"+ACK"
    NAK = b"-NAK"


class OrphanedDeliveries:
    """Naks the deliveries of earlier holders of this GPU.

    is_in_flight: whether this worker itself has a job. gpu, token: of the present hold. spawn: runs a second look.
    """

    def __init__(
        self,
        bus: Bus,
        records: Records,
        fleet: FleetTables,
        *,
        gpu: str,
        token: int,
        is_in_flight: Callable[[str], bool],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._bus = bus
        self._records = records
        self._fleet = fleet
        self._gpu = gpu
        self._token = token
        self._is_in_flight = is_in_flight
        self._spawn = spawn
        self._looked: dict[str, asyncio.TimerHandle] = {}

    async def follow(self, models: Mapping[str, Model]) -> None:
        """Give back the jobs of each of these models that was not looked at yet."""
        loop = asyncio.get_running_loop()
        for name in self._looked.keys() - models.keys():
            self._looked.pop(name).cancel()
        for name in models.keys() - self._looked.keys():
            self._looked[name] = loop.call_later(AGAIN_S, self._again, name)
            await self._look(name, is_only_home=self._fleet.is_only_assigned(models[name]))

    def forget(self) -> None:
        """Look at every model anew: deliveries may have been lost since. Without :meth:`follow`, look no more."""
        for timer in self._looked.values():
            timer.cancel()
        self._looked.clear()

    def _again(self, name: str) -> None:
        # What was given back may be with another home by now, unclaimed, and its record would not tell.
        model = self._fleet.find(name)
        if model is not None and self._fleet.is_only_assigned(model):
            self._spawn(self._look(name, is_only_home=True))

    async def _look(self, model: str, *, is_only_home: bool) -> None:
        given = 0
        try:
            for priority in PRIORITIES:
                given += await self._queue(model, priority, is_only_home=is_only_home)
        except SignalboxError as error:
            log.warning("rescue.failed", model=model, why=str(error))
        gauges.RESCUED.labels(model).inc(given)
        if given:
            log.info("rescue.given_back", model=model, jobs=given, gpu=self._gpu, token=self._token)

    async def _queue(self, model: str, priority: Priority, *, is_only_home: bool) -> int:
        consumer = names.consumer(model, priority)
        try:
            info = await self._bus.request_json(f"$JS.API.CONSUMER.INFO.{Stream.JOBS}.{consumer}")
        except NotFound:
            return 0
        left = info.get("num_ack_pending", 0)
        last = info.get("delivered", {}).get("stream_seq", 0)
        sequence = info.get("ack_floor", {}).get("stream_seq", 0) + 1
        given = 0
        for _ in range(MAX_LOOKS if left else 0):
            found = await self._next(model, priority, sequence)
            if found is None or found[0] > last:
                break
            sequence = found[0] + 1
            if found[1] is None:
                continue
            answer = await self._judge(found[1], is_only_home=is_only_home)
            if answer is not None:
                self._answer(consumer, found[0], info["delivered"].get("consumer_seq", 0), answer)
                given += answer is Acknowledgement.NAK
        return given

    async def _next(self, model: str, priority: Priority, sequence: int) -> tuple[int, Job | None] | None:
        """The next stored job; None in its place where only a newer program can read it."""
        ask: dict[str, Any] = {"seq": sequence, "next_by_subj": names.jobs_of(model, priority)}
        try:
            answer = await self._bus.request_json(f"$JS.API.STREAM.MSG.GET.{Stream.JOBS}", ask)
        except NotFound:
            return None
        stored = answer["message"]
        headers = parse_headers(base64.b64decode(stored.get("hdrs", "")))
        try:
            return stored["seq"], decode(Job, headers.get(Header.JOB, ""))
        except msgspec.MsgspecError:
            return stored["seq"], None

    async def _judge(self, job: Job, *, is_only_home: bool) -> Acknowledgement | None:
        """What to answer in the earlier holder's name, None to leave the delivery alone."""
        if self._is_in_flight(job.id):
            return None
        try:
            found = await self._records.read(job.id)
        except NewerVersion:
            return None
        if self._is_in_flight(job.id):  # it came while we read
            return None
        if found is None:
            return Acknowledgement.NAK if is_only_home else None
        record = found[0]
        if record.state.is_terminal:
            return Acknowledgement.ACK  # its end is durable; the acknowledgement may have died with its holder
        is_running = record.state is State.RUNNING
        is_lost = is_running and record.gpu == self._gpu and record.token <= self._token
        return Acknowledgement.NAK if is_lost else None

    def _answer(self, consumer: str, sequence: int, consumer_sequence: int, answer: Acknowledgement) -> None:
        # The server identifies a pending delivery by its stream sequence and ignores what is not
        # pending; the consumer sequence only has to lie within what was delivered (measured, ADR 0030).
        subject = f"$JS.ACK.{Stream.JOBS}.{consumer}.1.{sequence}.{consumer_sequence}.0.0"
        self._bus.send(subject, b"", b"", answer.value)
