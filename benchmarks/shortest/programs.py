"""The least that could answer a prediction durably, measured beside everything that ``make up`` starts.

Three programs on our NATS with our streams: a gateway that decodes JSON and publishes, behind the edge's HTTP server; a
worker that claims, has TensorFlow run and writes the terminal record; and TensorFlow in a process of its own, since a
device's memory comes back only when its process ends. Three grouped durable writes a job, as ours. No keys, limits,
signatures, lease, retries or console.
"""

import asyncio
import os
import struct
import sys
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import uvloop

from gateway_plugin.upstream.server import HttpServer
from signalbox.bus.client import Bus, Delivery, Message, Puller
from signalbox.bus.writes import GroupedWrite
from signalbox.jobs import delivery
from signalbox.program import log
from signalbox.program.settings import PREFIX, Wire, load
from signalbox.wire import jobids, names
from signalbox.wire.modeldocs import Batching
from signalbox.wire.names import Priority, Stream

PRIORITY: Final[Priority] = "mid"
MAX_BATCH: Final = Batching().max_size
SWEEP_S: Final = 1.0
ENDS: Final = "Bare-Reply"
READY: Final = b"ready"
"""What TensorFlow's process writes when the model is loaded, and the file that says so of all."""
_decode: Final = msgspec.json.Decoder(dict[str, list[Any]]).decode
_encode: Final = msgspec.json.Encoder().encode


class Gateway:
    """An ASGI application: one durable message a request, answered when the worker tells its end."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._jobs = bus.grouped(Stream.JOBS)
        self._waiting: dict[str, asyncio.Future[bytes]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request; a GET tells that the gateway listens."""
        body, is_more = b"", True
        while is_more:
            message = await receive()
            body, is_more = body + message.get("body", b""), message.get("more_body", False)
        answer = b"{}" if scope["method"] == "GET" else await self._predict(scope["path"], body)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def reported(self, message: Message) -> None:
        """A job has ended."""
        ended = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if ended is not None and not ended.done():
            ended.set_result(message.data)

    async def _predict(self, path: str, body: bytes) -> bytes:
        model = path.rpartition("/")[2].partition(":")[0]
        rows = np.asarray(_decode(body)["instances"], dtype=np.float32)
        job_id = jobids.new_job_id(time.time(), uuid.uuid4().int, is_short_lived=True)
        ended = self._waiting[job_id] = asyncio.get_running_loop().create_future()
        headers = {ENDS: names.reply(self._bus.instance, job_id)}
        await self._jobs.write(
            names.job(model, PRIORITY, "bench", job_id), rows.tobytes(), headers=headers, msg_id=job_id
        )
        found = np.frombuffer(await ended, dtype=np.float32)
        return _encode({"predictions": (found.reshape(len(rows), -1) if found.size > len(rows) else found).tolist()})


class Compute:
    """TensorFlow in a child process: rows in, rows out, one batch after another."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    async def run(self, rows: bytes) -> bytes:
        """The outputs of one batch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.writelines([struct.pack("<Q", len(rows)), rows])
            (size,) = struct.unpack("<Q", await self._process.stdout.readexactly(8))
            return await self._process.stdout.readexactly(size)


class ModelLoop:
    """One model's jobs. Two batches at once: the writes of one beside the run of the other."""

    def __init__(self, bus: Bus, model: str, compute: Compute) -> None:
        self._bus = bus
        self._records = bus.grouped(Stream.STATE)
        self._model = model
        self._compute = compute
        self._queue: deque[Delivery] = deque()
        self._open: set[int] = set()
        self._last = 0
        self._came = asyncio.Event()
        self._puller: Puller | None = None

    async def serve(self) -> None:
        """Until cancelled. What an earlier turn has left is not waited for by anybody."""
        await self._purge(None)
        consumer = await delivery.find(self._bus, self._model, PRIORITY, 0)
        self._puller = await self._bus.pull(consumer.name, self._take)
        self._puller.on_idle = self._ask
        self._ask()
        async with asyncio.TaskGroup() as group:
            for work in (self._batches, self._batches, self._sweep):
                group.create_task(work())

    def _ask(self) -> None:
        if self._puller is not None and self._puller.outstanding <= MAX_BATCH:
            self._puller.ask(MAX_BATCH)

    def _take(self, taken: Delivery) -> None:
        self._queue.append(taken)
        self._open.add(taken.seq)
        self._last = max(self._last, taken.seq)
        self._came.set()
        self._ask()

    async def _batches(self) -> None:
        while True:
            await self._came.wait()
            batch = [self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))]
            if not self._queue:
                self._came.clear()
            if batch:
                await self._run(batch)

    async def _run(self, batch: list[Delivery]) -> None:
        subjects = [names.state(names.job_of(taken.subject)) for taken in batch]
        claiming = asyncio.create_task(self._records.write_all([GroupedWrite(s, b"running", {}, 0) for s in subjects]))
        found = await self._compute.run(b"".join(taken.data for taken in batch))
        claims = await claiming
        size = len(found) // len(batch)  # one row a job
        ends = []
        for place, (subject, claim) in enumerate(zip(subjects, claims, strict=True)):
            assert isinstance(claim, int), claim
            ends.append(GroupedWrite(subject, found[place * size : (place + 1) * size], {}, claim))
        for taken, end, revision in zip(batch, ends, await self._records.write_all(ends), strict=True):
            assert isinstance(revision, int), revision
            self._bus.send(taken.headers[ENDS], b"", b"", end.data)
            self._open.discard(taken.seq)

    async def _sweep(self) -> None:
        """Remove what has ended in groups, as workers do."""
        while True:
            await asyncio.sleep(SWEEP_S)
            await self._purge(min(self._open, default=self._last + 1))

    async def _purge(self, below: int | None) -> None:
        asked: dict[str, str | int] = {"filter": names.jobs_of(self._model, PRIORITY)}
        if below is not None:
            asked["seq"] = below
        await self._bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.JOBS}", asked)


async def _gateway(listen: str) -> None:
    bus = await Bus.connect(load(Wire, PREFIX, os.environ), role="gateway")
    gateway = Gateway(bus)
    await bus.subscribe(names.reply(bus.instance, "*"), gateway.reported)
    await HttpServer.start(gateway, listen=listen)
    await asyncio.Event().wait()


async def _worker(root: str, *models: str) -> None:
    bus = await Bus.connect(load(Wire, PREFIX, os.environ), role="worker")
    computes = await asyncio.gather(*(_started(Path(root) / model / "1") for model in models))
    (Path(root) / READY.decode()).touch()
    async with asyncio.TaskGroup() as group:
        for model, compute in zip(models, computes, strict=True):
            group.create_task(ModelLoop(bus, model, compute).serve())


async def _started(path: Path) -> Compute:
    """TensorFlow's process, with the model loaded."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", __spec__.name, "compute", str(path))
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=1 << 24)
    assert process.stdout is not None
    await process.stdout.readexactly(len(READY))
    return Compute(process)


def _compute(path: str) -> None:
    import tensorflow as tf

    function = tf.saved_model.load(path).signatures["serving_default"]
    ((name, spec),) = function.structured_input_signature[1].items()
    inner = tuple(spec.shape)[1:]
    (output,) = function.structured_outputs
    function(**{name: tf.zeros([1, *inner])})
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    while head := sys.stdin.buffer.read(8):
        rows = sys.stdin.buffer.read(struct.unpack("<Q", head)[0])
        batch = tf.constant(np.frombuffer(rows, dtype=np.float32).reshape(-1, *inner))
        found = function(**{name: batch})[output].numpy().tobytes()
        sys.stdout.buffer.write(struct.pack("<Q", len(found)) + found)
        sys.stdout.buffer.flush()


def _mlp(path: str) -> None:
    """``y = softmax(relu(x @ a) @ b)``: x ``[-1, 784]``, y ``[-1, 10]`` float32."""
    import tensorflow as tf

    module = tf.Module()
    module.a = tf.Variable(tf.random.stateless_normal([784, 128], seed=[7, 0]) / 28)
    module.b = tf.Variable(tf.random.stateless_normal([128, 10], seed=[7, 1]) / 11)

    def serve(x: Any) -> dict[str, Any]:
        return {"y": tf.nn.softmax(tf.nn.relu(x @ module.a) @ module.b)}

    spec = tf.TensorSpec([None, 784], tf.float32, name="x")
    tf.saved_model.save(module, path, signatures=tf.function(serve, input_signature=[spec]))


def main(arguments: list[str]) -> None:
    """One of the programs: ``gateway ADDRESS``, ``worker FOLDER MODEL...``, ``compute PATH``, ``mlp PATH``."""
    what, *rest = arguments
    log.configure("INFO", program=f"bare-{what}")
    if what == "gateway":
        uvloop.run(_gateway(*rest))
    elif what == "worker":
        uvloop.run(_worker(*rest))
    elif what == "compute":
        _compute(*rest)
    else:
        _mlp(*rest)


if __name__ == "__main__":
    main(sys.argv[1:])
