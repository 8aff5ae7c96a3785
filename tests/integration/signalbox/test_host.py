"""``signalbox host`` as a real process, its workers real ones that compute with a toy."""

import asyncio
import contextlib
import http.client
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put
from signalbox.jobs import delayed, payloads
from signalbox.jobs.records import Records
from signalbox.ops.host.agent import NOT_BEGUN
from signalbox.ops.ports import free_port
from signalbox.wire import names
from signalbox.wire.duties import ReconcilerPosition
from signalbox.wire.messages import Job, State, decode
from signalbox.wire.names import Bucket
from signalbox.wire.scaling import ClassScale, Host, Scale
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Worker
from tests.rigs import lightworker
from tests.rigs.natsserver import NatsServer
from tests.rigs.processes import gone
from tests.rigs.submit import Ledger, floats, register

ROOT = Path(__file__).resolve().parents[3]


class HostProcess:
    """An agent. said: what it has printed."""

    def __init__(self, url: str, folder: Path, name: str, *options: str, **settings: object) -> None:
        self.id = name
        self.data = folder / name
        self._argv = (sys.executable, "-m", "signalbox", "host", "--id", name, "--data", str(self.data), *options)
        self._env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("SIGNALBOX_")},
            "SIGNALBOX_NATS_URL": url,
            "SIGNALBOX_HOST_WORKER": f"{sys.executable} -m {lightworker.PROGRAM}",
            "SIGNALBOX_WORKER_LOCK_DIR": str(folder / f"{name}-locks"),
            "SIGNALBOX_WORKER_CACHE_DIR": str(folder / f"{name}-cache"),
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            **{f"SIGNALBOX_{key.upper()}": str(value) for key, value in settings.items()},
        }
        self.process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def start(self) -> "HostProcess":
        self.data.mkdir(parents=True, exist_ok=True)
        with (self.data / "said").open("ab") as said:
            self.process = await asyncio.create_subprocess_exec(
                *self._argv, cwd=ROOT, env=self._env, stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said
            )
        return self

    async def stop(self) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.terminate()
        async with asyncio.timeout(60):
            return await self.process.wait()

    @property
    def said(self) -> str:
        return (self.data / "said").read_text()


class Seen:
    """What NATS has of hosts and workers, and a wait for what shall be there."""

    def __init__(self, bus: Bus) -> None:
        self._changed = asyncio.Event()
        self._hosts, self._workers = Table(bus, Bucket.HOSTS, Host), Table(bus, Bucket.WORKERS, Worker)

    async def start(self) -> "Seen":
        for table in (self._hosts, self._workers):
            table.on_change(lambda *_: self._changed.set())
            await table.start()
        return self

    async def close(self) -> None:
        await self._hosts.close()
        await self._workers.close()

    def host(self, name: str) -> Host | None:
        return self._hosts.get(names.token(name))

    def workers(self) -> dict[str, Worker]:
        return {worker.id: worker for worker in self._workers.items().values()}

    def ready(self) -> dict[str, int]:
        """Process ids of ready workers."""
        return {worker.id: worker.pid for worker in self.workers().values() if worker.state == "ready"}

    async def until(self, is_so: Callable[[], object], timeout_s: float = 60.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def seen(bus: Bus) -> AsyncIterator[Seen]:
    made = await Seen(bus).start()
    yield made
    await made.close()


@asynccontextmanager
async def hosts(*made: HostProcess) -> AsyncIterator[None]:
    try:
        for one in made:
            await one.start()
        yield
    except BaseException:
        for one in made:
            print(f"--- {one.id}", one.said, sep="\n")
        raise
    finally:
        for one in made:
            await one.stop()


def states(seen: Seen) -> list[str]:
    """Of the workers, as the host tells them."""
    host = seen.host("h1")
    return [worker.state for worker in host.workers] if host is not None else []


def in_memory(seen: Seen) -> list[str]:
    """Workers that have a model in memory and serve."""
    return [
        worker.id
        for worker in seen.workers().values()
        if worker.state == "ready" and any(one.state == "ready" for one in worker.models)
    ]


def residencies(seen: Seen, *, but: set[str]) -> list[str]:
    """States of what workers other than these have."""
    return [one.state for worker in seen.workers().values() if worker.id not in but for one in worker.models]


async def logged(one: HostProcess, sentence: str, timeout_s: float = 60.0) -> None:
    """Wait for a sentence on a file, of which nobody tells."""
    async with asyncio.timeout(timeout_s):
        while sentence not in one.said:  # noqa: ASYNC110  a file
            await asyncio.sleep(0.05)


async def want(bus: Bus, **classes: int) -> None:
    wanted = {name: ClassScale(wanted=number) for name, number in classes.items()}
    await put(bus, Bucket.DESIRED, names.SCALE, Scale(classes=wanted, at=time.time()))


async def test_a_host_keeps_as_many_workers_as_are_wanted_and_tells_what_it_has(
    nats: NatsServer, bus: Bus, seen: Seen, tmp_path: Path
) -> None:
    one = HostProcess(nats.url, tmp_path, "h1", "--device", "cpu:0", "--device", "cpu:1=small")
    async with hosts(one):
        ids = {f"h1-cpu{device}-{number}" for device in (0, 1) for number in (1, 2)}
        await seen.until(lambda: seen.ready().keys() == ids)  # nobody has decided anything: each device has workers
        await seen.until(lambda: set(states(seen)) == {"ready"})
        host = seen.host("h1")
        assert host is not None
        assert [(each.device.name, each.class_) for each in host.devices] == [
            ("Virtual device cpu:0", "cpu"),
            ("Virtual device cpu:1", "small"),
        ]
        assert {worker.id: worker.pid for worker in host.workers} == seen.ready()
        assert host.host == seen.workers()["h1-cpu0-1"].host
        assert host.wanted == {"cpu": 1, "small": 1}
        assert host.measured.start_s > 0
        assert host.disk_bytes > host.disk_free_bytes > 0
        assert host.software
        await want(bus, cpu=1, small=0)
        await seen.until(lambda: seen.ready().keys() == {"h1-cpu0-1", "h1-cpu0-2"})
        await want(bus, cpu=1, small=1)
        await seen.until(lambda: seen.ready().keys() == ids)
    assert seen.host("h1") is None
    assert not seen.workers()


async def ready(port: int) -> tuple[int, str]:
    """What a program says of itself; 0 = nothing yet."""

    def get() -> tuple[int, str]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as link:
            try:
                link.request("GET", "/readyz")
                page = link.getresponse()
            except ConnectionError:
                return 0, ""
            return page.status, page.read().decode()

    return await asyncio.to_thread(get)


async def told_until_ready(port: int, is_done: Callable[[], object] = lambda: True) -> list[str]:
    """What a program says until it is ready."""
    told: list[str] = []
    async with asyncio.timeout(60):
        while True:
            status, text = await ready(port)
            if status == 200 and is_done():
                return told
            if text and text not in told[-1:]:
                told.append(text)
            await asyncio.sleep(0.005)


async def test_a_host_is_ready_while_what_is_wanted_of_it_is_and_says_what_is_not(
    nats: NatsServer, bus: Bus, seen: Seen, tmp_path: Path
) -> None:
    """Its worker serves its own metrics on the next port, and is asked there."""
    port = free_ports(2)
    await want(bus, cpu=0)
    one = HostProcess(nats.url, tmp_path, "h1", "--device", "cpu:0", "--per-device", "1", metrics_port=port)
    async with hosts(one):
        told = await told_until_ready(port)
        assert NOT_BEGUN in "".join(told)
        assert not seen.workers(), "nobody is wanted"
        await want(bus, cpu=1)
        words = asyncio.create_task(told_until_ready(port + 1))
        told = await told_until_ready(port, is_done=seen.ready)
        assert "The runner starts: it has not imported TensorFlow yet." in "".join(await words)
        assert any(text.startswith("Worker h1-cpu0-1 at CPU-") for text in told)
        pid = seen.ready()["h1-cpu0-1"]
        os.kill(pid, signal.SIGKILL)
        told = await told_until_ready(port, is_done=lambda: seen.ready().get("h1-cpu0-1", pid) != pid)
        assert any(text.startswith("Worker h1-cpu0-1 at CPU-") for text in told)
        await want(bus, cpu=0)
        await seen.until(lambda: not seen.workers())
        assert await ready(port) == (200, "ready\n")


def free_ports(count: int) -> int:
    """The first of so many in a row that nobody has."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


async def test_a_killed_worker_has_another_process_in_its_place_within_two_seconds(
    nats: NatsServer, seen: Seen, tmp_path: Path
) -> None:
    one = HostProcess(nats.url, tmp_path, "h1", "--device", "cpu:0", "--per-device", "1")
    async with hosts(one):
        await seen.until(lambda: seen.ready() and states(seen) == ["ready"])
        host = seen.host("h1")
        assert host is not None
        before, start_s = host.workers[0].pid, host.measured.start_s
        began = time.monotonic()
        os.kill(before, signal.SIGKILL)
        await seen.until(lambda: (found := seen.host("h1")) and found.workers[0].pid not in {0, before})
        assert time.monotonic() - began < 2.0
        await seen.until(lambda: seen.ready() and before not in seen.ready().values())
        assert time.monotonic() - began < 2.0 + 1.5 * start_s


async def test_the_first_job_brings_a_worker_up_without_a_console_and_one_host_alone_starts_it(
    nats: NatsServer, bus: Bus, seen: Seen, tmp_path: Path
) -> None:
    await want(bus, cpu=0)
    ledger = await Ledger(bus).start()
    await register(bus, "half", lightworker.version("half"))
    made = [HostProcess(nats.url, tmp_path, name, "--device", "cpu:0", "--per-device", "1") for name in ("h1", "h2")]
    async with hosts(*made):
        await seen.until(lambda: seen.host("h1") and seen.host("h2"))
        assert not seen.workers()
        job = await ledger.submit("half", floats(3.0))
        (record,) = await ledger.ended(job, timeout_s=60)
        assert record.state == State.SUCCEEDED
        assert len(seen.workers()) == 1
        assert sum("starting one" in one.said for one in made) == 1


async def test_a_host_that_begins_with_jobs_waiting_starts_a_worker_for_them(
    nats: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    await want(bus, cpu=0)
    ledger = await Ledger(bus).start()
    await register(bus, "half", lightworker.version("half"))
    job = await ledger.submit("half", floats(3.0))
    async with hosts(HostProcess(nats.url, tmp_path, "h1", "--device", "cpu:0", "--per-device", "1")):
        (record,) = await ledger.ended(job, timeout_s=60)
    assert record.state == State.SUCCEEDED


async def later(bus: Bus, ledger: Ledger, due_in_s: float) -> Job:
    """A job accepted for later, as a gateway does."""
    body = floats(3.0)
    job = ledger.job("half", body, not_before=time.time() + due_in_s)
    job = replace(job, ref=(await payloads.store_input(bus, job, body)).ref)
    await delayed.accept(bus, Records(bus), job, now=time.time())
    return job


async def test_a_job_for_later_brings_a_worker_up_when_it_is_due(
    nats: NatsServer, bus: Bus, seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed, "SOON_S", 0.0)
    await want(bus, cpu=0)
    ledger = await Ledger(bus).start()
    await register(bus, "half", lightworker.version("half"))
    made = [HostProcess(nats.url, tmp_path, name, "--device", "cpu:0", "--per-device", "1") for name in ("h1", "h2")]
    async with hosts(*made):
        await seen.until(lambda: seen.host("h1") and seen.host("h2"))
        job = await later(bus, ledger, 3.0)
        (record,) = await ledger.ended(job.id)
        assert record.state == State.SUCCEEDED
        (worker,) = seen.workers().values()
        assert worker.started_at >= job.not_before
        assert sum("starting one" in one.said for one in made) == 1


async def test_what_the_last_worker_has_left_word_of_brings_one_up_when_it_is_due(
    nats: NatsServer, bus: Bus, seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed, "SOON_S", 0.0)
    ledger = await Ledger(bus).start()
    await register(bus, "half", lightworker.version("half"))
    await want(bus, cpu=1)
    one = HostProcess(nats.url, tmp_path, "h1", "--device", "cpu:0", "--per-device", "1")
    expires = await ledger.submit("unknown", floats(3.0), deadline_at=time.time() + 18.0)
    job = await later(bus, ledger, 32.0)
    async with hosts(one):
        await left(bus, lambda position: position.due_at and position.read_to > 1)
        await want(bus, cpu=0)  # with both in sight
        await seen.until(lambda: not seen.workers())
        await one.stop()
    async with hosts(one):  # which has heard of neither
        await seen.until(lambda: seen.host("h1"))
        assert not seen.workers()
        (record,) = await ledger.ended(expires)
        assert record.state == State.EXPIRED
        (record,) = await ledger.ended(job.id)
        assert record.state == State.SUCCEEDED


async def left(bus: Bus, is_so: Callable[[ReconcilerPosition], object], timeout_s: float = 60.0) -> None:
    """Wait for what the reconciler keeps, of which nobody is told."""
    async with asyncio.timeout(timeout_s):
        while True:
            found = await bus.leader_get(Bucket.DUTIES.stream, names.key(Bucket.DUTIES, names.POSITION))
            if found is not None and is_so(decode(ReconcilerPosition, found.data)):
                return
            await asyncio.sleep(0.1)


async def test_when_an_agent_is_killed_its_workers_end_and_another_host_has_some(
    nats: NatsServer, bus: Bus, seen: Seen, tmp_path: Path
) -> None:
    await want(bus, cpu=1)
    made = {name: HostProcess(nats.url, tmp_path, name, "--device", "cpu:0") for name in ("h1", "h2")}
    async with hosts(*made.values()):
        await seen.until(lambda: len(seen.ready()) == 2 and seen.host("h1") and seen.host("h2"))
        workers = dict(seen.ready())
        (first,) = {name.partition("-")[0] for name in workers}
        os.kill(made[first].pid, signal.SIGKILL)
        for pid in workers.values():
            await gone(pid)
        await seen.until(lambda: len(seen.ready()) == 2 and not seen.ready().keys() & workers.keys())
        await made[first].start()
        await seen.until(lambda: seen.ready().keys() == workers.keys())  # the same devices as before


async def test_a_drained_host_hands_over_to_another(nats: NatsServer, bus: Bus, seen: Seen, tmp_path: Path) -> None:
    await want(bus, cpu=1)
    made = [HostProcess(nats.url, tmp_path, name, "--device", "cpu:0") for name in ("h1", "h2")]
    async with hosts(*made):
        await seen.until(lambda: len(seen.ready()) == 2 and seen.host("h1") and seen.host("h2"))
        before = set(seen.ready())
        (first,) = {name.partition("-")[0] for name in before}
        await put(bus, Bucket.DESIRED, names.desired_host(first), Desired(is_draining=True))
        least = len(before)

        def handed_over() -> bool:
            nonlocal least
            least = min(least, len(seen.ready()))
            return len(seen.ready()) == 2 and not seen.ready().keys() & before

        await seen.until(handed_over)
        assert least > 0  # it served until the other was ready
        host = seen.host(first)
        assert host is not None
        assert host.is_draining
        await seen.until(lambda: (found := seen.host(first)) and not found.workers)


async def test_a_drained_host_serves_a_model_s_last_replica_until_it_is_in_memory_elsewhere(
    nats: NatsServer, bus: Bus, seen: Seen, tmp_path: Path
) -> None:
    await want(bus, cpu=1)
    ledger = await Ledger(bus).start()
    folder = tmp_path / "version"
    folder.mkdir()
    await register(bus, "rolling", folder)
    made = [HostProcess(nats.url, tmp_path, name, "--device", "cpu:0") for name in ("h1", "h2")]
    async with hosts(*made):
        await seen.until(lambda: in_memory(seen) and len(seen.ready()) == 2 and seen.host("h1") and seen.host("h2"))
        (old,) = in_memory(seen)
        first, before = old.partition("-")[0], set(seen.ready())
        (tmp_path / "held").touch()
        (folder / "wait").write_text(str(tmp_path / "held"))
        await put(bus, Bucket.DESIRED, names.desired_host(first), Desired(is_draining=True))
        # Its successor is ready and loads; presence says who serves meanwhile. Either may have pulled a job.
        await seen.until(lambda: "loading" in residencies(seen, but=before) and seen.workers()[old].kept == 1)
        assert seen.workers()[old].is_leaving
        assert seen.workers()[old].state == "ready"
        job = await ledger.submit("rolling", floats(3.0))
        assert before < seen.workers().keys()
        gap: list[str] = []

        def handed_over() -> bool:
            gap.extend(["nobody"] if not in_memory(seen) else [])
            return not seen.workers().keys() & before

        (tmp_path / "held").unlink()
        await seen.until(handed_over)
        assert not gap
        assert in_memory(seen)
        (record,) = await ledger.ended(job)
        assert record.state == State.SUCCEEDED


async def test_a_drained_host_ends_after_its_bound_where_nobody_loads_what_it_has(
    nats: NatsServer, bus: Bus, seen: Seen, tmp_path: Path
) -> None:
    await want(bus, cpu=1)
    folder = tmp_path / "version"
    folder.mkdir()
    await register(bus, "rolling", folder)
    made = [
        HostProcess(nats.url, tmp_path, name, "--device", "cpu:0", "--per-device", "1", host_warm_s=1)
        for name in ("h1", "h2")
    ]
    async with hosts(*made):
        await seen.until(lambda: in_memory(seen) and seen.host("h1") and seen.host("h2"))
        (old,) = in_memory(seen)
        (tmp_path / "held").touch()
        (folder / "wait").write_text(str(tmp_path / "held"))
        await put(bus, Bucket.DESIRED, names.desired_host(old.partition("-")[0]), Desired(is_draining=True))
        await seen.until(lambda: old not in seen.workers())
        assert not in_memory(seen)
        (tmp_path / "held").unlink()
        await seen.until(lambda: in_memory(seen))


async def test_an_upgrade_replaces_one_worker_after_the_other_and_no_job_fails(
    nats: NatsServer, bus: Bus, seen: Seen, tmp_path: Path
) -> None:
    ledger = await Ledger(bus).start()
    await register(bus, "half", lightworker.version("half"), replicas=2)
    one = HostProcess(nats.url, tmp_path, "h1", "--device", "cpu:0", "--device", "cpu:1")
    async with hosts(one):
        await seen.until(lambda: len(seen.ready()) == 4)
        before = seen.ready()
        least = len(before)

        def replaced() -> bool:
            nonlocal least
            least = min(least, sum(pid > 0 for pid in seen.ready().values()))
            return len(seen.ready()) == 4 and not set(seen.ready().values()) & set(before.values())

        asked = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "signalbox", "host", "--upgrade", "--data", str(one.data)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert await asked.wait() == 0
        waiting = asyncio.create_task(seen.until(replaced))
        jobs = []
        while not waiting.done():
            jobs.append(await ledger.submit("half", floats(3.0)))
            await ledger.ended(jobs[-1], timeout_s=60)
        await waiting
        records = await ledger.ended(*jobs, timeout_s=60)
    assert {record.state for record in records} == {State.SUCCEEDED}
    assert least >= 3


async def test_a_worker_that_cannot_start_is_told_with_the_reason(nats: NatsServer, seen: Seen, tmp_path: Path) -> None:
    one = HostProcess(
        nats.url,
        tmp_path,
        "h1",
        "--device",
        "cpu:0",
        "--per-device",
        "1",
        worker_model_folders="/nowhere",
        worker_sandbox="strict",
        worker_runner_user="nobody-of-that-name",
    )
    async with hosts(one):
        await seen.until(lambda: (host := seen.host("h1")) and host.workers and host.workers[0].why)
        host = seen.host("h1")
        assert host is not None
        assert "while starting" in host.workers[0].why
