"""A production stack as ``make production`` wrote it down, watched and struck from outside.

Its own supervisor starts again what ended; we never do.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from signalbox.bus.client import Bus
from signalbox.program.errors import Misconfigured, SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire.messages import decode
from signalbox.wire.names import Bucket, key, token
from signalbox.wire.workerdocs import Worker
from tests.rigs import models
from tests.rigs.outage import POLL_S, becomes
from tests.rigs.processes import gone, is_alive
from verification.chaos.environment.namespace import PacketFilter, output
from verification.chaos.evidence.journal import SECRETS, now
from verification.chaos.evidence.recorder import Recorder
from verification.chaos.rig.operator import Operator
from verification.chaos.rig.site import Site

BACK_S: Final = 60.0
"""A program that ended, or was cut off, is at work again so long after nothing hinders it: promised."""
INTERVALS: Final = "intervals.log"
ONCE: Final = ("topology", "bootstrap")
"""Services that end."""
LIMITS: Final = {"max_delivery": 20, "sync_wait_s": 10.0, "deadline_s": 3600.0}
"""A run kills more runners under one job than a sane day does: a strike must not end it here."""


class Production(Site):
    """up: path of ``up.json``. folder: of the run; its ``history`` is filled here."""

    slow = "linger"
    """The demonstration has a ``slow`` of its own."""

    def __init__(self, up: Path, folder: Path) -> None:
        self._up = up
        self._read_at = 0.0
        self._doc: dict[str, Any] = {}
        history = folder / "history"
        history.mkdir(parents=True, exist_ok=True)
        self.services = tuple(n for n in self.doc["processes"] if n in self.doc["namespaces"])
        self.nodes = tuple(name for name in self.services if name.startswith("nats-"))
        self._addresses = {n: _addresses_in(self.doc["namespaces"][n]) for n in self.services}
        super().__init__(history, node_count=len(self.nodes))
        self.folder = folder
        self.operator = Operator(self.doc["console"], **self.doc["login"])
        self._bus: Bus | None = None
        self._exits = AsyncExitStack()

    # -- what is written down of it --------------------------------------------------------------------

    @property
    def doc(self) -> dict[str, Any]:
        """``up.json`` as it is now."""
        try:
            written = self._up.stat().st_mtime_ns
        except FileNotFoundError as error:
            raise Misconfigured(f"No {self._up}: start `make production` first.") from error
        if written != self._read_at:
            self._doc, self._read_at = json.loads(self._up.read_text()), written
        return self._doc

    @property
    def bus(self) -> Bus:
        """Our own connection to NATS, as its admin."""
        assert self._bus is not None
        return self._bus

    @property
    def front_url(self) -> str:
        """Where callers call."""
        return str(self.doc["front"])

    async def publish_models(self) -> None:
        """By the console's API."""
        await self.operator.add_model("half", models.half_plus_two(), LIMITS)
        await self.operator.add_model(self.slow, models.slow(), LIMITS)

    async def add_key(self, *, name: str) -> str:
        """By the console's API."""
        text = await self.operator.add_key(f"{name}-{time.time_ns()}")
        self.secrets[f"the key of {name}"] = text
        return text

    @property
    def workers(self) -> Sequence[str]:
        """Names of all workers."""
        return [name for name in self.services if name.startswith("worker-")]

    def pid_of(self, name: str) -> int:
        """Process id of a service, 0 while it does not run."""
        pid = int(self.doc["processes"].get(name, 0))
        return pid if pid and is_alive(pid) else 0

    def filter(self, name: str) -> PacketFilter:
        """What the packets of a service meet."""
        return PacketFilter(str(self.doc["namespaces"][name]))

    def addresses(self, *names: str) -> list[str]:
        """Every address of services, on all their networks."""
        return [address for name in names for address in self._addresses[name]]

    def volume(self, name: str) -> Path:
        """Where the data of a service lies."""
        return Path(self.doc["data"]) / "volumes" / name

    # -- coming and going ------------------------------------------------------------------------------

    async def kill(self, name: str) -> None:
        """SIGKILL; returns once its supervisor knows."""
        await self.end(name, signal.SIGKILL)

    async def end(self, name: str, number: signal.Signals) -> None:
        """A signal that ends a service; returns once its supervisor knows."""
        pid = self.pid_of(name)
        assert pid, f"{name} does not run"
        os.kill(pid, number)
        await gone(pid, 90.0)
        await self.until(lambda: self.doc["processes"].get(name) != pid, what=f"{name} missed")

    async def bring_back(self, name: str) -> None:
        """Its supervisor starts it; returns when it is ready."""
        self.coming_back.add(name)
        try:
            await becomes(lambda: self.is_ready(name), limit_s=2 * BACK_S)
        finally:
            self.coming_back.discard(name)

    async def is_ready(self, name: str) -> bool:
        """Whether it runs and does what it is for, as far as that shows from outside."""
        pid = self.pid_of(name)
        if not pid:
            return False
        if name in self.workers:
            return await self._is_present(name, pid)
        return await self.operator.answers() if name == "console" else True

    async def _is_present(self, name: str, pid: int) -> bool:
        """Presence outlives a killed worker for some seconds: that of an earlier life does not count."""
        bucket = Bucket.WORKERS
        try:
            found = await self.bus.leader_get(bucket.stream, key(bucket, token(name)))
            worker = decode(Worker, found.data) if found is not None else None
        except (SignalboxError, msgspec.MsgspecError):
            return False
        return worker is not None and (worker.pid, worker.state) == (pid, "ready")

    async def whole(self, *, limit_s: float) -> None:
        """Returns when every service is ready and every replica has been current. Raises ``AssertionError``."""
        left = {name for name in self.services if name not in ONCE} | {"replicas"}
        behind: set[str] | None = None
        began = now()
        while left:
            for name in sorted(left - {"replicas"}):
                if await self.is_ready(name):
                    left.discard(name)
            if "replicas" in left:  # under load they are so by turns, seldom all at one instant
                found = await self.behind()
                behind = found if behind is None or found is None else behind & found
                if behind is not None and not behind:
                    left.discard("replicas")
            if left and now() - began > limit_s:
                raise AssertionError(f"after {limit_s:g} s not at work: {sorted(left)}, behind: {behind}")
            await asyncio.sleep(POLL_S)
        await self.refresh()

    async def beside(self, name: str, *argv: str) -> str:
        """What a command says that runs in the container of a service, as an operator would run it there."""
        pid = self.pid_of(name)
        environment = _environment(pid)
        process = await asyncio.create_subprocess_exec(
            "nsenter",
            f"--target={pid}",
            "--mount",
            "--uts",
            "--net",
            "--root",
            "--wd",
            *_user(pid),
            *argv,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, f"{argv}: {said.decode(errors='replace')[-600:]}"
        return said.decode(errors="replace")

    async def calm(self) -> None:
        """Let every packet through and every process run."""
        for name in self.services:
            await asyncio.to_thread(self.filter(name).heal)
            with suppress(ProcessLookupError):
                if pid := self.pid_of(name):
                    os.kill(pid, signal.SIGCONT)

    # -- the run ---------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        doc = self.doc
        secrets = Path(doc["data"]) / "secrets"
        password = (secrets / "nats_admin").read_text().strip()
        wire = Wire(
            nats_url=doc["nats"],
            nats_user="admin",
            nats_password=password,
            nats_ca_file=doc.get("nats_ca", ""),
            request_timeout_s=5.0,
            ping_interval_s=1.0,
        )
        self._bus = await Bus.connect(wire, role="admin", name="chaos")
        self._exits.push_async_callback(self._bus.close)
        self.recorder = await self._exits.enter_async_context(Recorder(self._bus, self.history))
        self.began_after = (await self._bus.request_json("$JS.API.STREAM.INFO.STATE"))["state"]["last_seq"]
        if doc.get("intervals"):
            (self.history / INTERVALS).symlink_to(doc["intervals"])
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.calm()
        await self._exits.aclose()
        await self.operator.close()
        self._keep_evidence()
        self.faults.close()

    def _keep_evidence(self) -> None:
        """Logs and what may not stand in them, beside the history, so that the run can be judged again."""
        data = Path(self.doc["data"])
        entered = self.history / INTERVALS
        if entered.is_symlink():
            text = entered.read_bytes()
            entered.unlink()
            entered.write_bytes(text)
        logs = self.folder / "data" / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for log in (data / "logs").glob("*.log*"):
            (logs / log.name).write_bytes(log.read_bytes())
        files = (path for path in (data / "secrets").glob("*") if path.is_file())
        known = {p.name: p.read_text().strip() for p in files if p.suffix not in {".env", ".crt", ".pem"}}
        path = self.folder / SECRETS
        path.touch(mode=0o600)
        path.write_bytes(msgspec.json.encode(known | self.secrets))


def _addresses_in(namespace: str) -> list[str]:
    reported = json.loads(output("ip", "-json", "-n", namespace, "-4", "address"))
    return [str(each["local"]) for device in reported if device["ifname"] != "lo" for each in device["addr_info"]]


def _environment(pid: int) -> dict[str, str]:
    words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def _user(pid: int) -> tuple[str, str]:
    """Options of ``nsenter`` for who a process is."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    ids = {line.split()[0]: line.split()[1] for line in lines if line.startswith(("Uid:", "Gid:"))}
    return f"--setuid={ids['Uid:']}", f"--setgid={ids['Gid:']}"
