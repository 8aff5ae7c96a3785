"""Fronts for the suite: the edge, a real Tyk, and a Tyk before a plugin that does as it is asked."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from signalbox.ops.ports import HOST, free_port
from tests.conformance import programs
from tests.conformance.programs import FILES, Program, tyk_binary
from tests.rigs.runningstack import RunningStack

if TYPE_CHECKING:
    from tests.conformance.servedmodels import Fleet, Served

TYK = pytest.param("tyk", marks=pytest.mark.tyk)
KINDS = ["edge", TYK]
RUNNING = "running"
"""A stack that runs already, named with ``--up``: a real Tyk before plugins that are not ours to change."""


@dataclass
class Front:
    """A front under test. plugin: the program that holds the plugin. gateway: the one that listens.

    upstream: what is behind a Tyk's hooks.
    """

    kind: str
    url: str
    plugin: Program
    gateway: Program
    control_url: str = ""
    redis: Program | None = None
    redis_port: int = 0
    upstream: Program | None = None
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))

    def ask(
        self, probe: dict[str, Any] | None = None, *, method: str = "GET", path: str = "/v1/probe", **more: Any
    ) -> httpx.Response:
        """One request whose hooks do what ``probe`` says."""
        headers = {"X-Probe": json.dumps(probe or {}), **more.pop("headers", {})}
        return self.client.request(method, self.url + path, headers=headers, **more)

    def seen(self, probe: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """What the Post hook got for such a request."""
        answer = self.ask(probe, **more)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document


FrontMaker = Callable[..., AbstractContextManager[Front]]


@contextmanager
def probed_front(kind: str, files: Path = FILES, **tyk_fields: str) -> Iterator[Front]:
    """A Tyk before the probe plugin, on the gateway files ``files``."""
    if kind == RUNNING:
        pytest.skip("needs the probe in the plugin's place; the running stack has plugins of its own")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sb-front-")))
        script = str(Path(__file__).with_name("probe.py"))
        port = free_port()
        url = f"http://{HOST}:{port}"
        target = f"unix://{folder}/plugin.sock"
        argv = [sys.executable, script, "--listen", target]
        plugin = stack.enter_context(Program(argv, ready="probe is ready", env={"PYTHONPATH": str(programs.ROOT)}))
        front = Front(kind, url, plugin, plugin)
        ports = {"h2c": free_port(), "http": free_port()}
        front.upstream = stack.enter_context(programs.upstream(ports))
        put_tyk_in_front(stack, front, port, target, folder, files, ports, **tyk_fields)
        stack.callback(front.client.close)
        yield front


def put_tyk_in_front(
    stack: ExitStack,
    front: Front,
    port: int,
    plugin: str,
    folder: Path,
    files: Path,
    upstream: Mapping[str, int],
    **fields: str,
) -> None:
    """Starts Redis and Tyk before ``plugin``; skips the test where there is no Tyk."""
    binary = tyk_binary()
    if binary is None:
        pytest.skip("no Tyk here: set SIGNALBOX_TYK_BIN, and install redis-server")
    control_port = free_port()
    front.control_url = f"http://{HOST}:{control_port}"
    front.redis_port = free_port()
    front.redis = stack.enter_context(programs.redis(front.redis_port, folder))
    front.gateway = stack.enter_context(
        programs.tyk(
            binary,
            port=port,
            control_port=control_port,
            redis_port=front.redis_port,
            plugin=plugin,
            upstream=upstream,
            files=files,
            folder=folder,
            **fields,
        )
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every kind of front that the module is about, or with ``--up`` the one that runs."""
    if "kind" in metafunc.fixturenames:
        is_running = metafunc.config.getoption("--up") is not None
        kinds = [RUNNING] if is_running else getattr(metafunc.module, "KINDS", KINDS)
        metafunc.parametrize("kind", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of front."""
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def front(kind: str) -> Iterator[Front]:
    """One front for a whole module: tests leave it as they found it."""
    with probed_front(kind) as made:
        yield made


@pytest.fixture(scope="session")
def fleet() -> "Iterator[Fleet]":
    """Real models in a real worker, for every module that calls them."""
    from tests.conformance import servedmodels  # it imports this module

    with servedmodels.fleet() as made:
        yield made


@pytest.fixture(scope="module")
def served(kind: str, request: pytest.FixtureRequest) -> "Iterator[Served]":
    """A front of ``kind`` before the fleet."""
    from tests.conformance import servedmodels  # it imports this module

    if kind == RUNNING:
        pytest.skip("has models of its own")
    with servedmodels.served(kind, request.getfixturevalue("fleet")) as made:
        yield made


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: str, running: RunningStack | None) -> str:
    """Where a front listens, for tests that ask nothing of the plugin behind it."""
    if running is not None:
        return str(running.facts["front"])
    made: Front = request.getfixturevalue("front")
    return made.url


@pytest.fixture
def new_front(kind: str) -> FrontMaker:
    """Makes a front of its own for tests that break things or change the files."""

    def make(files: Path = FILES, **fields: str) -> AbstractContextManager[Front]:
        return probed_front(kind, files, **fields)

    return make


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A copy of the gateway's files that a test may change."""
    copied = tmp_path / "tyk"
    shutil.copytree(FILES, copied)
    return copied
