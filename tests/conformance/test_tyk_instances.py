"""Several plugins behind one real Tyk: who gets the calls, a new one, a dead one.

The three experiments of iQiyi on gRPC behind load balancers, on the hop from Tyk to its plugins, each before (a name
that stands for one connection) and after (``grpc_round_robin_load_balancing``); and the HTTP upstreams of several.
"""

import asyncio
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway_plugin.proto import inference_pb2 as messages
from signalbox.bus.client import Bus
from signalbox.ops.ports import HOST, free_port
from signalbox.program.settings import Wire
from tests.conformance.conftest import Front, put_tyk_in_front
from tests.conformance.programs import Program
from tests.conformance.test_signalbox_front import prepare, publish
from tests.rigs.gateway import PEPPER, Key, key
from tests.rigs.nameserver import NameServer
from tests.rigs.natsserver import NatsServer

pytestmark = pytest.mark.tyk
CALLS: Final = 300
TOLERANCE: Final = 0.1
AGE_S: Final = 1
"""A plugin asks Tyk's connection to dial again after so long (30 s in compose): then Tyk resolves the name again."""
NEW_S: Final = 60.0
SECRET: Final = "of-the-conformance-suite"
STATUS: Final = "/v1/models/half"
"""The post hook answers it."""
METADATA: Final = "/v2/models/half"
"""The HTTP upstream answers it."""
READY: Final = "/inference.GRPCInferenceService/ModelReady"
"""The gRPC upstream answers it."""
NOTICED_S: Final = 30.0
ALL_AWAY: Final = "all hosts are down\n"
"""Tyk's own words with 503, as docs/tyk.md says: it takes all HTTP upstreams for dead."""
ADDRESSES: Final = (HOST, "127.0.0.2", "127.0.0.3")


class Plugins:
    """Real plugins on one port of several loopback addresses. key: of a caller that may do everything."""

    def __init__(self, stack: ExitStack, nats: NatsServer, mine: Key) -> None:
        self.key = mine
        self.port, self.http_port, self.grpc_port = free_port(), free_port(), free_port()
        self._metrics = {address: free_port() for address in ADDRESSES}
        self._stack = stack
        self._nats = nats
        self._programs: dict[str, Program] = {}

    def start(self, *addresses: str) -> None:
        """One on each address; returns when they are ready."""
        for address in addresses:
            env = {
                "SIGNALBOX_NATS_URL": self._nats.url,
                "SIGNALBOX_KEY_PEPPER": PEPPER,
                "SIGNALBOX_GATEWAY_SECRET": SECRET,
                "SIGNALBOX_GATEWAY_LISTEN": f"{address}:{self.port}",
                "SIGNALBOX_GATEWAY_UPSTREAM_LISTEN": f"{address}:{self.http_port}",
                "SIGNALBOX_GATEWAY_GRPC_LISTEN": f"{address}:{self.grpc_port}",
                "SIGNALBOX_GATEWAY_MAX_CONNECTION_AGE_S": str(AGE_S),
                "SIGNALBOX_METRICS_PORT": str(self._metrics[address]),
            }
            program = Program([sys.executable, "-m", "gateway_plugin"], ready="gateway.ready", env=env)
            self._programs[address] = self._stack.enter_context(program)

    def kill(self, address: str) -> None:
        """SIGKILL."""
        self._programs[address].kill()

    def bring_back(self, address: str) -> None:
        """Start a killed one again."""
        self._programs[address].start()

    def answered(self) -> Counter[str]:
        """Calls of hooks that each has answered: two a request, to one plugin after the other."""
        found: Counter[str] = Counter()
        for address, program in self._programs.items():
            if not program.is_alive:
                continue
            text = httpx.get(f"http://{HOST}:{self._metrics[address]}/metrics").text
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name == "signalbox_gateway_answers_total":
                        found[address] += int(sample.value)
        return found


class Caller:
    """One client with one connection over HTTP, and one over gRPC."""

    def __init__(self, url: str, mine: Key) -> None:
        self.url = url
        self.failed: set[str] = set()
        self._metadata = (("authorization", f"Bearer {mine.text}"),)
        self._channel = grpc.insecure_channel(url.removeprefix("http://"))
        headers = {"Authorization": f"Bearer {mine.text}"}
        self._client = httpx.Client(base_url=url, headers=headers, timeout=60, limits=httpx.Limits(max_connections=1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._channel.close()

    def ask(self, path: str = STATUS) -> bool:
        """Whether a call is answered; asserts that it may be made again where it is not."""
        got = self._client.get(path)
        if got.status_code != 200:
            assert got.status_code == 503, got.text
            if got.text == ALL_AWAY:
                self.failed.add(ALL_AWAY)
            else:
                assert got.headers["retry-after"]
                self.failed.add(got.json()["code"])
        return got.status_code == 200

    def ask_grpc(self) -> bool:
        """The same for a call over gRPC."""
        method = self._channel.unary_unary(READY, messages.ModelRequest.SerializeToString, bytes)
        call = method.future(messages.ModelRequest(name="half"), timeout=60, metadata=self._metadata)
        code = call.code()
        assert code in {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}, call
        return bool(code is grpc.StatusCode.OK)

    def answered(self, number: int = CALLS, path: str = STATUS) -> int:
        """How many of so many calls are answered."""
        return sum(self.ask(path) for _ in range(number))


@pytest.fixture
def plugins(shared_server: NatsServer) -> Iterator[Plugins]:
    mine = key()

    async def put() -> None:
        await prepare(shared_server)
        bus = await Bus.connect(Wire(nats_url=shared_server.url), role="admin", name="conformance")
        await publish(bus, mine)
        await bus.close()

    asyncio.run(put())
    with ExitStack() as stack:
        yield Plugins(stack, shared_server, mine)


@pytest.fixture
def shown(files: Path) -> Path:
    """The gateway's files, with the secret that Tyk shows to plugins that listen on a port."""
    for path in (files / "apps").iterdir():
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "config_data": {"secret": SECRET}}))
    return files


@contextmanager
def behind_tyk(plugins: Plugins, names: NameServer, files: Path, **fields: str) -> Iterator[Caller]:
    """A caller of a Tyk that finds its plugins by name."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sb-instances-")))
        port = free_port()
        front = Front("tyk", f"http://{HOST}:{port}", Program([], ready=""), Program([], ready=""))
        upstream = {"h2c": plugins.grpc_port, "http": plugins.http_port}
        put_tyk_in_front(stack, front, port, names.target(plugins.port), folder, files, upstream, **fields)
        yield stack.enter_context(Caller(front.url, plugins.key))


RETRYABLE: Final = {"unavailable", "ambiguous"}
BEFORE: Final = {"COPROCESSOPTIONS_GRPCROUNDROBINLOADBALANCING": "false"}


def shares(before: Counter[str], after: Counter[str]) -> dict[str, float]:
    """Of the calls in between."""
    gained = after - before
    return {address: number / gained.total() for address, number in gained.items()}


def test_shares_are_even_within_a_tenth_and_one_client_leaves_no_plugin_idle(plugins: Plugins, shown: Path) -> None:
    plugins.start(*ADDRESSES)
    with NameServer(*ADDRESSES) as names:
        with behind_tyk(plugins, names, shown, **BEFORE) as caller:
            before = plugins.answered()
            assert caller.answered(30) == 30
            assert len(shares(before, plugins.answered())) < len(ADDRESSES), "the disease: some have nothing to do"
        with behind_tyk(plugins, names, shown) as caller:
            caller.answered(30)
            before = plugins.answered()
            assert caller.answered() == CALLS
            found = shares(before, plugins.answered())
    assert set(found) == set(ADDRESSES)
    assert all(abs(share * len(ADDRESSES) - 1) <= TOLERANCE for share in found.values()), found


def test_a_new_plugin_gets_calls_within_a_minute_and_nothing_is_restarted(plugins: Plugins, shown: Path) -> None:
    old, new = ADDRESSES[:1], ADDRESSES[1]
    plugins.start(*old)
    with NameServer(*old) as names, behind_tyk(plugins, names, shown) as caller:
        assert caller.answered(30) == 30
        plugins.start(new)
        names.addresses.append(new)
        done = threading.Event()
        threading.Timer(NEW_S, done.set).start()
        failed = 0
        while not plugins.answered()[new]:
            assert not done.is_set(), "it has had no call for a minute"
            failed += 20 - caller.answered(20)
        assert not failed


def test_a_plugin_that_is_killed_costs_no_call_that_is_made_after(plugins: Plugins, shown: Path) -> None:
    both = ADDRESSES[:2]
    plugins.start(*both)
    with NameServer(*both) as names, behind_tyk(plugins, names, shown) as caller:
        assert caller.answered(30) == 30
        plugins.kill(both[0])
        assert caller.answered() == CALLS, "the name still has both"


def test_a_restarted_plugin_gives_only_answers_that_may_be_asked_for_again(plugins: Plugins, shown: Path) -> None:
    plugins.start(HOST)
    over, working = threading.Event(), threading.Semaphore(0)

    def call(ask: Callable[[], bool]) -> int:
        answered = 0
        while not over.is_set():
            if ask():
                answered += 1
                working.release()
        return answered

    with NameServer(HOST) as names, behind_tyk(plugins, names, shown) as caller, ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor())
        of_path = [stack.enter_context(Caller(caller.url, plugins.key)) for _ in range(2)]
        asks: list[Callable[[], bool]] = [caller.ask_grpc]
        asks += [partial(each.ask, path) for each, path in zip(of_path, (STATUS, METADATA), strict=True)]
        calling = [pool.submit(call, ask) for ask in asks]
        stack.callback(over.set)
        for is_last in (False, False, False, True):
            for _ in range(100):
                assert working.acquire(timeout=60)
            if not is_last:
                plugins.kill(HOST)
                plugins.bring_back(HOST)
        over.set()
        assert all(each.result() for each in calling)
        assert of_path[0].failed | of_path[1].failed <= RETRYABLE


def test_two_http_upstreams_share_calls_and_a_dead_one_is_left_out(plugins: Plugins, shown: Path) -> None:
    """With the settings that docs/tyk.md names; a dead one's share is refused until Tyk has noticed."""
    both = ADDRESSES[:2]
    targets = [f"http://{address}:{plugins.http_port}" for address in both]
    change(
        shown / "apps" / "inference.json",
        lambda api: api["proxy"].update(
            enable_load_balancing=True, target_list=targets, check_host_against_uptime_tests=True
        ),
        uptime_tests={"check_list": [{"url": f"{each}/v2/health/live", "method": "GET"} for each in targets]},
    )
    change(
        shown / "tyk.conf",
        uptime_tests={"disable": False, "config": {"time_wait": 1, "failure_trigger_sample_size": 2}},
    )
    plugins.start(*both)
    with NameServer(*both) as names, behind_tyk(plugins, names, shown) as caller:
        assert caller.answered(CALLS, METADATA) == CALLS
        plugins.kill(both[1])
        # One of two calls is the dead one's, or none where Tyk has noticed before the first.
        assert [caller.ask(METADATA) for _ in range(2)].count(False) <= 1
        until_all_are_answered(caller)
        plugins.bring_back(both[1])
        until_all_are_answered(caller)
        plugins.kill(both[0])
        until_all_are_answered(caller)  # by the other, which Tyk may have taken for dead until now
        assert caller.failed - {ALL_AWAY} == {"unavailable"}, "nothing was accepted"


def change(path: Path, edit: Callable[[dict[str, Any]], object] = lambda _: None, **fields: object) -> None:
    """Rewrite a file of JSON."""
    doc = {**json.loads(path.read_bytes()), **fields}
    edit(doc)
    path.write_text(json.dumps(doc))


def until_all_are_answered(caller: Caller) -> None:
    """Call until so many in a row are answered that none was meant for one that is dead."""
    deadline = time.monotonic() + NOTICED_S
    while caller.answered(50, METADATA) < 50:
        assert time.monotonic() < deadline, "Tyk has not noticed"
