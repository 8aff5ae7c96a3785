"""A whole stack in the test's own event loop, whose programs a test kills and brings back.

It is the stack of ``signalbox up`` (:mod:`signalbox.ops.up.stack`), with every port chosen by the system.
"""

import asyncio
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import httpx

from signalbox.bus import table
from signalbox.ops import probes
from signalbox.ops.up.child import Child, Spec
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program import keys
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.modeldocs import Batching, Limits, Model, Signature, TensorSpec, Version
from signalbox.wire.names import Bucket, token
from signalbox.wire.workerdocs import Lease
from tests.rigs import lightworker
from tests.rigs.processes import gone

ALL_SCOPES: Final = ("jobs:submit", "jobs:read", "jobs:cancel")
ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "expired"})
POLL_S: Final = 0.05
"""Between two looks over HTTP, where there is nothing to wait on."""
PACE_S: Final = 0.02
"""Between a refusal and the next try, so that a load on a dead stack does not become a busy loop."""


async def becomes(check: Callable[[], Awaitable[bool]], *, limit_s: float = 60.0) -> float:
    """Seconds until ``check`` holds. Fails after ``limit_s``."""
    began = time.monotonic()
    while not await check():
        assert time.monotonic() - began < limit_s, f"not within {limit_s:g} s"
        await asyncio.sleep(POLL_S)
    return time.monotonic() - began


class House(UpStack):
    """A stack without demonstration.

    settings: further environment of its programs, by role. is_light: its workers are :mod:`tests.rigs.lightworker`.
    """

    def __init__(self, data: DataDir, settings: Mapping[str, Mapping[str, str]], *, is_light: bool = False) -> None:
        self.said: list[str] = []
        options = UpOptions(
            data=data.path,
            front="edge",
            front_port=0,
            console_port=0,
            nats_port=0,
            model_folders=(Path(tempfile.gettempdir()),),  # where the tests' models are kept
        )
        super().__init__(options, data, self.said.append)
        self._settings = settings
        self._is_light = is_light

    async def start(self, spec: Spec) -> Child:
        """Start the program the way the stack does."""
        return await super().start(lightworker.instead(spec) if self._is_light else spec)

    def env(self, role: str) -> dict[str, str]:
        """The stack's environment, with the test's own settings."""
        return {**super().env(role), **self._settings.get(role, {})}

    def operator(self, token: str) -> httpx.AsyncClient:
        """The console's REST API with an operator's token."""
        return httpx.AsyncClient(base_url=self.console_url, headers={"Authorization": f"Bearer {token}"}, timeout=60)

    def child(self, name: str) -> Child:
        """One of its programs."""
        return next(child for child in self.children if child.spec.name == name)

    async def kill(self, name: str) -> None:
        """SIGKILL to a program that runs; it is gone after this."""
        child = self.child(name)
        pid = child.pid
        assert pid, f"{name} has ended by itself: {child.tail()}"  # 0 would be our own group
        os.kill(pid, signal.SIGKILL)
        await gone(pid)

        async def is_reaped() -> bool:
            return child.pid != pid

        await becomes(is_reaped)

    async def serve_console(self) -> None:
        """The console without its controller, which would end keys and models that :meth:`add_key` made."""
        env = self._console_env()
        await self.run_to_end("bootstrap", "console", "bootstrap", env=env)
        ready = partial(probes.http, self.console_url, "/login")
        await self.start(self.spec("console", "console", "serve", env=env, ready=ready))

    async def revive(self, *names: str) -> None:
        """Start what was killed."""
        for name in names:
            await self.child(name).start()

    async def set_workers(self, count: int) -> None:
        """Exactly workers 1 to ``count`` run, and those that do not are known to be away."""
        known = {child.spec.name for child in self.children}
        for number in range(1, count + 1):
            name = f"worker-{number}"
            if name not in known:
                await self.start_worker(number)
            elif not self.child(name).pid:
                await self.revive(name)
        kept = {f"worker-{number}" for number in range(1, count + 1)}
        for name in known - kept:
            if name.startswith("worker-"):
                await self._send_away(name)

    async def _send_away(self, name: str) -> None:
        child = self.child(name)
        if child.pid:
            await self.kill(name)

        async def is_forgotten() -> bool:
            return not await child.spec.ready()

        await becomes(is_forgotten)

    @asynccontextmanager
    async def supervised(self, name: str) -> AsyncIterator[None]:
        """While inside, ``name`` is started again when it dies, as ``signalbox up`` does."""
        task = asyncio.create_task(self.child(name).keep(lambda: None))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def add_model(self, name: str, path: Path, signature: Signature, *, limits: Limits | None = None) -> None:
        """A model as the console publishes it."""
        signatures = {"serving_default": signature}
        version = Version(version=1, path=str(path), signatures=signatures, size_bytes=10_000, joined=tuple(signatures))
        model = Model(
            name=name,
            versions=(version,),
            default_version=1,
            batching=Batching(max_size=8, rows_independent=True),
            limits=limits or Limits(),
            updated_at=time.time(),
        )
        await table.put(self.bus, Bucket.MODELS, token(name), model)

    async def add_key(self, **fields: Any) -> str:
        """An API key that may do everything, unless told otherwise; its text."""
        text, kid = keys.mint("test")
        pepper = self.data.secret("pepper").read_text()
        stored = {"id": kid, "account_id": kid, "hmac": keys.digest(pepper, text), "scopes": ALL_SCOPES}
        key = ApiKey(**{**stored, "updated_at": time.time(), **fields})
        await table.put(self.bus, Bucket.KEYS, kid, key)
        return text

    async def last_job(self) -> int:
        """Sequence of the newest message JOBS has ever held."""
        info = await self.bus.request_json("$JS.API.STREAM.INFO.JOBS")
        return int(info["state"]["last_seq"])

    @asynccontextmanager
    async def caller(self, key: str) -> AsyncIterator["Caller"]:
        """Somebody who calls the front with ``key``."""
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(base_url=self.front_url, timeout=45, limits=limits) as client:
            yield Caller(client, key)


@asynccontextmanager
async def house(
    folder: Path, settings: Mapping[str, Mapping[str, str]] | None = None, *, is_light: bool = False
) -> AsyncIterator[House]:
    """NATS and the front; console and workers are for the test to start. Ended with the block."""
    with DataDir(folder) as data:
        made = House(data, settings or {}, is_light=is_light)
        try:
            await made.start_nats()
            await made.start_edge()
            yield made
        finally:
            await made.stop()


def floats(name: str = "x") -> Signature:
    """One float32 vector in, ``y`` of the same length out."""
    spec = TensorSpec(dtype="float32", shape=(-1,))
    return Signature(inputs={name: spec}, outputs={"y": spec})


class Caller:
    """Calls the front with one key and keeps a ledger: what was answered, what was accepted."""

    def __init__(self, client: httpx.AsyncClient, key: str) -> None:
        self.client = client
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.accepted: dict[str, float] = {}
        self.answers: Counter[tuple[str, int]] = Counter()
        self.wrong: list[str] = []
        self._changed = asyncio.Event()

    async def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request."""
        headers = {**self.headers, **more.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **more)

    async def submit(self, model: str, value: float) -> int:
        """One job; its status, 0 for no answer at all."""
        body = {"model": model, "instances": [value]}
        got = await self._note("submit", "/v1/jobs", body)
        if got is not None and got.status_code == 202:
            self.accepted[got.json()["id"]] = value
        return got.status_code if got is not None else 0

    async def predict(self, model: str, value: float) -> int:
        """One synchronous prediction of a model that halves and adds two."""
        got = await self._note("predict", f"/v1/models/{model}:predict", {"instances": [value]})
        if got is not None and got.status_code == 200:
            expected = {"predictions": [value / 2 + 2]}
            if got.json() != expected:
                self.wrong.append(f"{got.text} instead of {expected}")
        return got.status_code if got is not None else 0

    def count(self, act: str, *statuses: int) -> int:
        """How often ``act`` was answered so."""
        return sum(self.answers[act, status] for status in statuses)

    def statuses(self, act: str) -> set[int]:
        """Everything ``act`` was ever answered."""
        return {status for name, status in self.answers if name == act}

    async def until(self, condition: Callable[[], bool], *, limit_s: float = 60.0) -> None:
        """Return when ``condition`` holds, looked at after each answer."""
        try:
            async with asyncio.timeout(limit_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {limit_s:g} s: {dict(self.answers)}") from None

    async def job(self, job_id: str) -> dict[str, Any]:
        """A job as the front shows it."""
        got = await self.call("GET", f"/v1/jobs/{job_id}")
        assert got.status_code == 200, got.text
        found: dict[str, Any] = got.json()
        return found

    async def endings(self, *, limit_s: float = 60.0) -> dict[str, dict[str, Any]]:
        """Every accepted job once all have ended."""
        ended: dict[str, dict[str, Any]] = {}

        async def are_all_ended() -> bool:
            for job_id in self.accepted.keys() - ended.keys():
                got = await self.call("GET", f"/v1/jobs/{job_id}")
                if got.status_code != 200 or got.json()["state"] not in ENDED:
                    return False
                ended[job_id] = got.json()
            return True

        await becomes(are_all_ended, limit_s=limit_s)
        return ended

    async def _note(self, act: str, path: str, body: object) -> httpx.Response | None:
        try:
            got = await self.call("POST", path, json=body)
        except httpx.TransportError:
            self.answers[act, 0] += 1
            return None
        else:
            self.answers[act, got.status_code] += 1
            if got.status_code == 503 and int(got.headers.get("retry-after", 0)) < 1:
                self.wrong.append(f"503 without Retry-After: {got.text}")
            return got
        finally:
            self._changed.set()


@asynccontextmanager
async def load(*acts: Callable[[int], Awaitable[int]], size: int = 2) -> AsyncIterator[None]:
    """While inside, ``size`` callers of each act, with the numbers 0, 1, 2... as their argument."""
    stop = asyncio.Event()

    async def go_on(act: Callable[[int], Awaitable[int]], number: int) -> None:
        while not stop.is_set():
            status = await act(number)
            number += size
            if status not in {200, 202}:
                await asyncio.sleep(PACE_S)

    async with asyncio.TaskGroup() as group:
        for act in acts:
            for first in range(size):
                group.create_task(go_on(act, first))
        try:
            yield
        finally:
            stop.set()


class Holders:
    """Who holds the GPU, as the lease bucket tells."""

    def __init__(self, stack: UpStack) -> None:
        self._table = table.Table(stack.bus, Bucket.LEASES, Lease)
        self._changed = asyncio.Event()
        self._table.on_change(lambda *_: self._changed.set())

    async def __aenter__(self) -> Self:
        await self._table.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._table.close()

    async def after(self, token_was: int, *, limit_s: float = 60.0) -> tuple[str, int]:
        """The first holder under a newer token, and that token."""
        async with asyncio.timeout(limit_s):
            while True:
                for gpu, lease in self._table.items().items():
                    held = lease.token or self._table.revision(gpu)
                    if lease.state == "HELD" and held > token_was:
                        return lease.owner, held
                self._changed.clear()
                await self._changed.wait()
