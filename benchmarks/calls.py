"""``python -m benchmarks.calls``: how many calls one lone predict makes, through how many files, and what it crosses.

Plugin and worker run in one process, on a real nats-server and a real runner; the plugin's hooks are called as a
gateway calls them. A resumed coroutine is not a call, nor is a comprehension. A crossing is a call whose caller, the
nearest one that is ours, is of another top-level package. Counting ends when nothing has been called for a moment; of
some tries the one with the fewest calls counts, as what is periodic may fall into the others.
"""

import argparse
import asyncio
import http
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Self

from benchmarks.rig import bed
from gateway_plugin.gateway import Gateway
from gateway_plugin.hooks.dispatcher import AUTH, POST
from gateway_plugin.proto.coprocess_pb2 import HookType, Object
from gateway_plugin.settings import PREFIX as GATEWAY_PREFIX
from gateway_plugin.settings import GatewaySettings
from signalbox.bus.client import Bus
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.settings import load
from workers.device import devices
from workers.host.identity import WorkerIdentity
from workers.settings import PREFIX as WORKER_PREFIX
from workers.settings import WorkerSettings
from workers.supervisor import Supervisor

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("gateway_plugin", "signalbox", "workers")
WARM_UP: Final = 30
TRIES: Final = 10
LONELY_S: Final = 0.6
"""Before each counted predict: the one before has left nothing to be told."""
QUIET_S: Final = 0.02
COMPREHENSIONS: Final = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
_RESUMED: Final = CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR


class Trace:
    """The calls of the thread in which it is started."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.crossings: Counter[tuple[str, str]] = Counter()
        self._known: dict[CodeType, str] = {}
        self._seen: set[FrameType] = set()

    def __enter__(self) -> Self:
        sys.setprofile(self._on)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._seen.clear()

    @property
    def files(self) -> int:
        """Files that the calls go through."""
        return len({file for file, _ in self.calls})

    async def quiet(self) -> None:
        """Return when nothing has been called for a moment."""
        calls = -1
        while calls != self.calls.total():
            calls = self.calls.total()
            await asyncio.sleep(QUIET_S)

    def _on(self, frame: FrameType, event: str, _: Any) -> None:
        file = self._file(frame.f_code) if event == "call" else ""
        if not file or frame in self._seen or frame.f_code.co_name in COMPREHENSIONS:
            return
        if frame.f_code.co_flags & _RESUMED:
            self._seen.add(frame)
        self.calls[file, frame.f_code.co_qualname] += 1
        caller = frame.f_back
        while caller is not None and not self._file(caller.f_code):
            caller = caller.f_back
        if caller is not None:
            ends = (_package(self._file(caller.f_code)), _package(file))
            if ends[0] != ends[1]:
                self.crossings[ends] += 1

    def _file(self, code: CodeType) -> str:
        """The file of a code object of ours, below the repository; empty for any other."""
        known = self._known.get(code)
        if known is None:
            path = code.co_filename.removeprefix(f"{ROOT}/")
            known = self._known[code] = path if path.startswith(PACKAGES) else ""
        return known


def _package(file: str) -> str:
    return file.partition("/")[0]


@asynccontextmanager
async def _running(folder: Path) -> AsyncIterator[tuple[Gateway, str]]:
    """The plugin, while a worker runs, and a key."""
    with DataDir(folder) as data:
        stack = UpStack(UpOptions(data=folder, workers=1, front_port=0, console_port=0, nats_port=0), data, print)
        try:
            await stack.start_nats()
            await bed.publish(stack, await bed.made_model(stack, "half_plus_two", bed.MAX_BATCH))
            key = await bed.mint(stack)
            async with _worker(stack), _plugin(stack) as gateway:
                yield gateway, key
        finally:
            await stack.stop()


@asynccontextmanager
async def _plugin(stack: UpStack) -> AsyncIterator[Gateway]:
    settings = load(
        GatewaySettings, GATEWAY_PREFIX, stack.env("gateway") | {"SIGNALBOX_GATEWAY_LISTEN": "unix:///unused"}
    )
    bus = await Bus.connect(settings, role="gateway")
    gateway = await Gateway.start(bus, settings)
    try:
        yield gateway
    finally:
        gateway.stop_waiting()
        await gateway.close()
        await bus.close()


@asynccontextmanager
async def _worker(stack: UpStack) -> AsyncIterator[None]:
    env = {
        **stack.env("worker"),
        "SIGNALBOX_WORKER_DEVICE": "cpu:0",
        "SIGNALBOX_WORKER_LOCK_DIR": str(stack.data.path / "locks"),
        "SIGNALBOX_WORKER_MODEL_FOLDERS": ",".join(map(str, stack.model_folders())),
    }
    settings = load(WorkerSettings, WORKER_PREFIX, env)
    bus = await Bus.connect(settings, role="worker")
    identity = WorkerIdentity.of_this_process(settings.worker_id, settings.lock_folder)
    supervisor = Supervisor(bus, settings, identity, await devices.find(settings.device, settings.lock_folder))
    running = asyncio.create_task(supervisor.run(), name="worker")
    try:
        yield
    finally:
        supervisor.stop()
        await running
        await bus.close()


async def _predict(gateway: Gateway, key: str) -> int:
    """Authenticate and run one predict; returns the status that it is answered with."""
    checked = await gateway.dispatcher.dispatch(_call(AUTH, key))
    asked = _call(POST, key)
    asked.session.CopyFrom(checked.session)
    asked.metadata.update(checked.metadata)
    answered = await gateway.dispatcher.dispatch(asked)
    return int(answered.request.return_overrides.response_code)


def _call(hook: str, key: str) -> Object:
    call = Object(hook_name=hook, spec={"APIID": "signalbox", "OrgID": "signalbox"})
    call.hook_type = HookType.CustomKeyCheck if hook == AUTH else HookType.Post
    request = call.request
    request.method, request.scheme = "POST", "http"
    request.url = request.request_uri = "/v1/models/half_plus_two:predict"
    request.raw_body = b'{"instances": [1.0]}'
    request.headers.update(bed.headers_of(key))
    request.return_overrides.response_code = -1
    return call


async def measure(folder: Path) -> Trace:
    """The trace of the try that made the fewest calls."""
    traces = []
    async with _running(folder) as (gateway, key):
        async with asyncio.timeout(bed.FIRST_ANSWER_S):
            while await _predict(gateway, key) != http.HTTPStatus.OK:  # noqa: ASYNC110  tables tell of no arrival
                await asyncio.sleep(bed.RETRY_S)
        for _ in range(WARM_UP):
            await _predict(gateway, key)
        for _ in range(TRIES):
            await asyncio.sleep(LONELY_S)
            with Trace() as trace:
                await _predict(gateway, key)
                await trace.quiet()
            traces.append(trace)
    return min(traces, key=lambda trace: trace.calls.total())


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument("--all", action="store_true", help="print every function and how often it is called, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="calls-") as folder:
        trace = asyncio.run(measure(Path(folder)))
    print(f"{trace.calls.total()} calls, {trace.files} files, {trace.crossings.total()} crossings between packages")
    for (start, end), count in trace.crossings.most_common():
        print(f"{count:>6}  {start} -> {end}")
    if options.all:
        for (file, name), count in sorted(trace.calls.items()):
            print(f"{count:>6}  {file}  {name}")


if __name__ == "__main__":
    main()
