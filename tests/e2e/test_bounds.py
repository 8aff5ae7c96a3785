"""Bounds reached by one account or stranger of a whole stack, while another account's predicts go on.

Each client at a bound has an address of its own. Nothing is asserted of durations: the neighbour's slowest call
of each row is printed (``pytest -rP``) and stands in the report.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from console.live.consumer import Close
from signalbox.bus import table
from signalbox.ops.ports import HOST, free_port
from signalbox.program import keys
from signalbox.wire import names
from signalbox.wire.keydocs import Share
from signalbox.wire.messages import decode
from signalbox.wire.modeldocs import Limits
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Worker
from tests.rigs import models, outage
from tests.rigs.hostileclients import (
    LIMIT_S,
    Address,
    dial,
    half_head,
    long_field,
    many_fields,
    nothing,
    refused_by,
    silent,
)
from tests.rigs.outage import Caller, House, becomes, floats, load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.asyncio(loop_scope="module")]
STRANGER: Final = "127.0.0.2"
PACE_S: Final = 0.05
"""Between two calls of the neighbour."""
CONNECTIONS: Final = 64
DELAYED: Final = 2
PLACES: Final = 24
QUEUE: Final = 64
"""Twice what accounts share of a class, so that one cannot have it all there."""
TABS: Final = 2
WAITING, QUEUED, STORED = "waiting", "queued", "stored"
"""Models that do not run."""
FATAL: Final = "fatal"
"""A model that aborts its process for some inputs."""
SETTINGS: Final = {
    "gateway": {
        "SIGNALBOX_GATEWAY_HTTP_CONNECTIONS_PER_ADDRESS": str(CONNECTIONS),
        "SIGNALBOX_GATEWAY_HTTP_HEAD_S": "3",
        "SIGNALBOX_GATEWAY_HTTP_BODY_S": "3",
        "SIGNALBOX_GATEWAY_MAX_WAITING": str(PLACES),
        "SIGNALBOX_GATEWAY_MAX_DELAYED": str(DELAYED),
        "SIGNALBOX_GATEWAY_MAX_STREAMS": str(PLACES),
    },
    "worker": {"SIGNALBOX_WORKER_MAX_RESULT_BYTES": str(1024 * 1024)},
    "console": {"SIGNALBOX_CONSOLE_LIVE_PER_USER": str(TABS)},
}


class Scene:
    """A stack with one worker, what its programs count, and strangers."""

    def __init__(self, house: House, counters: dict[str, int], neighbours_key: str) -> None:
        self.house = house
        self.neighbours_key = neighbours_key
        self._counters = counters

    @property
    def front(self) -> Address:
        """Where callers connect."""
        return HOST, self.house.front_port

    async def counted(self, sample: str, program: str = "gateway") -> float:
        """What a program has counted; ``sample`` is a name with its labels, as it is served."""
        async with httpx.AsyncClient(timeout=LIMIT_S) as client:
            got = await client.get(f"http://{HOST}:{self._counters[program]}/metrics")
        found = re.search(rf"^{re.escape(sample)} (\S+)$", got.text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    @asynccontextmanager
    async def counts(self, *samples: str, program: str = "gateway") -> AsyncIterator[None]:
        """Each of them rises inside this."""
        before = [await self.counted(sample, program) for sample in samples]
        yield
        after = [await self.counted(sample, program) for sample in samples]
        still = [s for s, was, now in zip(samples, before, after, strict=True) if now <= was]
        assert not still, f"not counted: {still}"

    @asynccontextmanager
    async def account(self, **fields: Any) -> AsyncIterator[Caller]:
        """Another account's caller, from the strangers' address, whose key the front knows. fields: of its key."""
        async with self.client(self.house.front_url) as client:
            caller = Caller(client, await self.house.add_key(**fields))
            await becomes(lambda: _knows(caller))
            yield caller

    @asynccontextmanager
    async def client(self, url: str) -> AsyncIterator[httpx.AsyncClient]:
        """Somebody at the strangers' address."""
        way = httpx.AsyncHTTPTransport(local_address=STRANGER, limits=httpx.Limits(max_connections=CONNECTIONS))
        async with httpx.AsyncClient(base_url=url, transport=way, timeout=LIMIT_S) as client:
            yield client


async def _knows(caller: Caller) -> bool:
    return (await caller.call("GET", "/v1/models")).status_code == 200


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    counters = {program: free_port() for program in ("gateway", "worker", "console")}
    settings = {role: dict(given) for role, given in SETTINGS.items()}
    for program, port in counters.items():
        settings[program]["SIGNALBOX_METRICS_PORT"] = str(port)
    async with outage.house(tmp_path_factory.mktemp("bounds") / "data", settings) as house:
        await house.add_model("half", models.half_plus_two(), floats())
        for name in (WAITING, QUEUED, STORED):
            await table.put(house.bus, Bucket.DESIRED, f"model.{name}", Desired(is_paused=True))
            limits = Limits(sync_wait_s=3.0, max_queue=QUEUE)
            await house.add_model(name, models.half_plus_two(), floats(), limits=limits)
        fatal = Limits(max_delivery=1)
        await house.add_model(FATAL, models.picky(), floats(), limits=fatal)
        await house.serve_console()
        await house.start_worker(1)
        key = await house.add_key()
        async with house.caller(key) as caller:
            await becomes(lambda: _works(caller), limit_s=90)
        yield Scene(house, counters, key)


async def _works(caller: Caller) -> bool:
    return await caller.predict("half", 1.0) == 200


Answered = Callable[[], Awaitable[None]]
Neighbour = Callable[[], AbstractAsyncContextManager[Answered]]


@pytest_asyncio.fixture(loop_scope="module")
async def neighbour(scene: Scene, request: pytest.FixtureRequest) -> AsyncIterator[Neighbour]:
    """Inside it another account's predicts go on; each of them must be answered 200, and rightly.

    It gives what waits for one more of these answers.
    """
    took: list[float] = []
    async with scene.house.caller(scene.neighbours_key) as caller:

        async def call(number: int) -> int:
            began = time.monotonic()
            status = await caller.predict("half", float(number))
            took.append(time.monotonic() - began)
            assert (status, caller.wrong) == (200, []), "The neighbour noticed."
            await asyncio.sleep(PACE_S)
            return status

        async def until_answered() -> None:
            had = caller.count("predict", 200)
            await caller.until(lambda: caller.count("predict", 200) > had)

        @asynccontextmanager
        async def goes_on() -> AsyncIterator[Answered]:
            async with load(call, size=1):
                await until_answered()
                yield until_answered
                await until_answered()

        yield goes_on
    slowest = f"{max(took) * 1000:.0f} ms" if took else "nothing"
    print(f"{request.node.name}: the neighbour's slowest of {len(took)} calls took {slowest}")


def refused(reason: str) -> str:
    """The gateway's sample of requests refused for a reason."""
    return f'signalbox_refused_total{{reason="{reason}"}}'


def no_room(reason: str) -> str:
    """The gateway's sample of submissions for which nothing more is stored."""
    return f'signalbox_refused_for_room_total{{reason="{reason}"}}'


# ------------------------------------------------------------------------------------------ the front


async def test_connections_of_one_address(scene: Scene, neighbour: Neighbour) -> None:
    async with neighbour() as answered, scene.counts(refused("limit_exceeded:connections")):
        held = [await dial(scene.front, source=STRANGER) for _ in range(CONNECTIONS)]
        reader, writer = await dial(scene.front, source=STRANGER)
        async with asyncio.timeout(LIMIT_S):
            answer = await reader.read()
        await answered()
        async with scene.house.caller(scene.neighbours_key) as newcomer:  # on a new connection
            assert await newcomer.predict("half", 1.0) == 200
        for _, other in (*held, (reader, writer)):
            other.close()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"your address" in answer
    assert b"\r\nRetry-After: " in answer


@pytest.mark.parametrize("attack", [long_field, many_fields])
async def test_heads_without_end(
    scene: Scene, neighbour: Neighbour, attack: Callable[[Address], Awaitable[bytes]]
) -> None:
    async with neighbour(), scene.counts(refused("too_large:head")):
        answers = await asyncio.gather(*(attack(scene.front) for _ in range(4)))
    assert {refused_by(answer) for answer in answers} == {431}


@pytest.mark.parametrize(("say", "status"), [(nothing, None), (half_head, 408)], ids=["silent", "half head"])
async def test_silent_clients_and_half_heads(
    scene: Scene, neighbour: Neighbour, say: bytes, status: int | None
) -> None:
    async with neighbour(), scene.counts(refused("deadline_exceeded:head")):
        answers = await silent(scene.front, say, 40)
    assert {refused_by(answer) for answer in answers} == {status}


def post(key: str, size: int) -> bytes:
    """The head of a submission with so long a body."""
    who = f"Authorization: Bearer {key}\r\n" if key else ""
    return f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n{who}Content-Length: {size}\r\n\r\n".encode()


async def test_half_bodies(scene: Scene, neighbour: Neighbour) -> None:
    key = await known_key(scene)
    async with neighbour(), scene.counts(refused("deadline_exceeded:body")):
        answers = await silent(scene.front, post(key, 10) + b"half", 20)
    assert {refused_by(answer) for answer in answers} == {408}


async def known_key(scene: Scene) -> str:
    """A key that the front knows."""
    async with scene.account() as caller:
        return caller.headers["Authorization"].removeprefix("Bearer ")


async def test_bodies_without_a_key(scene: Scene, neighbour: Neighbour) -> None:
    counted = scene.counts('signalbox_keys_refused_total{why="missing"}', refused("unauthorized"))
    async with neighbour(), counted:
        answers = await silent(scene.front, post("", 30_000_000), 20)  # before a byte of the body
    assert {refused_by(answer) for answer in answers} == {401}


async def test_bodies_in_flight(scene: Scene, neighbour: Neighbour) -> None:
    """Twenty of 30 MB, of 512 MiB for all: half of that is one account's, whether its bytes came or not."""
    key = await known_key(scene)
    async with neighbour(), scene.counts(refused("limit_exceeded:bodies")):
        answers = await silent(scene.front, post(key, 30_000_000), 20)
    assert {refused_by(answer) for answer in answers} == {408, 429}


async def test_costly_bodies_at_the_decoders(scene: Scene, neighbour: Neighbour) -> None:
    """All of them are refused, and a third account's large body has its turn meanwhile."""
    costly = b'{"instances": [' + b'{"k":0},' * 1_700_000 + b'{"k":0}]}'
    large = [1.0] * 40_000
    async with scene.account() as flood, scene.account() as third:

        async def predict(caller: Caller, **body: Any) -> httpx.Response:
            return await caller.call("POST", "/v1/models/half:predict", **body)

        async with neighbour(), scene.counts(refused("too_large:names")):
            floods = [asyncio.create_task(predict(flood, content=costly)) for _ in range(12)]
            got = await predict(third, json={"instances": large})
            answers = await asyncio.gather(*floods)
    assert got.status_code == 200, got.text
    assert got.json() == {"predictions": [2.5] * len(large)}
    assert {answer.status_code for answer in answers} == {413}
    assert "names" in answers[0].text


# ------------------------------------------------------------------------------------- what jobs take


async def test_waiting_places(scene: Scene, neighbour: Neighbour) -> None:
    """Of a model that does not run, so that its callers wait, half of all places at most."""
    async with scene.account() as flood:
        async with neighbour(), scene.counts(refused("limit_exceeded:waiting")):
            await asyncio.gather(*(flood.predict(WAITING, 1.0) for _ in range(PLACES + 8)))
        assert flood.statuses("predict") == {429, 504}


async def test_streams_of_events(scene: Scene, neighbour: Neighbour) -> None:
    """Of a job that does not run, half of all streams at most."""
    async with scene.account() as flood:
        await flood.submit(WAITING, 1.0)
        (job_id,) = flood.accepted
        async with AsyncExitStack() as stack, neighbour(), scene.counts(refused("limit_exceeded:streams")):
            follow = partial(flood.client.stream, "GET", f"/v1/jobs/{job_id}/events", headers=flood.headers)
            answers = [await stack.enter_async_context(follow()) for _ in range(PLACES)]
        assert [answer.status_code for answer in answers] == [200] * (PLACES // 2) + [429] * (PLACES // 2)


async def test_queue_places(scene: Scene, neighbour: Neighbour) -> None:
    """Of a model's queue one account never takes all: a third's job is accepted by the same queue."""
    demoted = f'signalbox_jobs_demoted_total{{model="{QUEUED}"}}'
    async with scene.account() as flood, scene.account() as third:
        async with neighbour(), scene.counts(refused("queue_full"), demoted):
            for _ in range(QUEUE + 1):
                await flood.submit(QUEUED, 1.0)
            assert await third.submit(QUEUED, 1.0) == 202
        assert flood.statuses("submit") == {202, 429}
        assert flood.count("submit", 202) < QUEUE


async def test_stored_inputs(scene: Scene, neighbour: Neighbour) -> None:
    body = {"model": STORED, "instances": [1] * 500_000}
    async with (
        scene.account(share=Share(stored_bytes=3_000_000)) as flood,
        neighbour(),
        scene.counts(no_room("account_inputs"), refused("limit_exceeded:stored_bytes")),
    ):
        answers = [await flood.call("POST", "/v1/jobs", json=body) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 429, 429]
    assert "3000000" in answers[-1].text


async def test_delayed_jobs(scene: Scene, neighbour: Neighbour) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body = {"model": "half", "instances": [1.0], "not_before": later}
    async with (
        scene.account() as flood,
        neighbour(),
        scene.counts(no_room("account_delayed"), refused("limit_exceeded:delayed")),
    ):
        answers = [await flood.call("POST", "/v1/jobs", json=body) for _ in range(DELAYED + 1)]
    assert [answer.status_code for answer in answers] == [202] * DELAYED + [429]


async def test_bytes_of_one_result(scene: Scene, neighbour: Neighbour) -> None:
    async with (
        scene.account() as flood,
        neighbour(),
        scene.counts('signalbox_gateway_answers_total{hook="edge",status="422"}', refused("result_too_large")),
    ):
        large = {"instances": [1] * 300_000}
        got = await flood.call("POST", "/v1/models/half:predict", json=large)
    assert got.status_code == 422
    assert str(1024 * 1024) in got.text


async def test_room_for_results(scene: Scene, neighbour: Neighbour) -> None:
    """Of 32 MiB for all, results of 40 KB: whose they are is refused before the room is taken from others."""
    counted = scene.counts(no_room("account_results"), refused("limit_exceeded:results"))
    body, stored = {"model": "half", "instances": [1.0] * 10_000}, 0
    async with room(scene.house, Stream.STATE, 32 * 1024 * 1024), scene.account(account_id="flood") as flood:
        async with neighbour() as answered, counted:
            while (got := await flood.call("POST", "/v1/models/half:predict", json=body)).is_success:
                stored += 40_000
                if not stored % 2_000_000:  # what the next are judged by
                    await becomes(partial(_tell_of, scene.house, "flood", stored))
            await answered()
            async with scene.account() as third:
                assert await third.submit("half", 1.0) == 202
        assert got.status_code == 429, got.text
        assert "results" in got.text
        assert int(got.headers["Retry-After"]) >= 1


async def _tell_of(house: House, account: str, stored: int) -> bool:
    """Whether workers tell of so many bytes of an account's results."""
    stream = Bucket.WORKERS.stream
    found = await house.bus.list_latest(stream, [names.key(Bucket.WORKERS, ">")])
    workers = [decode(Worker, one.data) for one in found if one.data]
    return sum(worker.results.get(account, 0) for worker in workers) >= stored


@asynccontextmanager
async def room(house: House, stream: Stream, max_bytes: int) -> AsyncIterator[None]:
    """So much room, inside this."""
    found = (await house.bus.request_json(f"$JS.API.STREAM.INFO.{stream}"))["config"]
    await shrink(house, stream, max_bytes)
    yield
    await shrink(house, stream, found["max_bytes"])


async def test_idempotency_keys(scene: Scene, neighbour: Neighbour) -> None:
    async with (
        scene.account(share=Share(idempotency_keys=3)) as flood,
        neighbour(),
        scene.counts(no_room("account_keys"), refused("limit_exceeded:idempotency_keys")),
    ):
        body = {"model": "half", "instances": [1.0]}
        answers = [
            await flood.call("POST", "/v1/jobs", json=body, headers={"Idempotency-Key": f"order-{number}"})
            for number in range(4)
        ]
    assert [answer.status_code for answer in answers] == [202, 202, 202, 429]


async def test_wrong_keys(scene: Scene, neighbour: Neighbour) -> None:
    counted = scene.counts('signalbox_keys_refused_total{why="too_many"}', refused("limit_exceeded:keys"))
    async with scene.client(scene.house.front_url) as client, neighbour(), counted:
        guesses = [Caller(client, keys.mint("test")[0]) for _ in range(80)]
        answers = [await guess.call("GET", "/v1/models") for guess in guesses]
        async with scene.account() as newcomer:  # a right key is let in where guesses are not
            assert await newcomer.predict("half", 1.0) == 200
    assert {answer.status_code for answer in answers} == {401, 429}


async def test_inputs_of_dead_letters(scene: Scene, neighbour: Neighbour) -> None:
    """Two jobs that take the runner down: of 8 MiB for all the second's input is past the share of its account."""
    await shrink(scene.house, Stream.DLQ_PARTS, 8 * 1024 * 1024)
    counted = scene.counts('signalbox_dead_letter_inputs_not_kept_total{reason="share"}', program="worker")
    async with scene.account() as flood, neighbour(), counted:
        for value in (-200.0, -300.0):  # another input: one that has taken a runner down is not run again
            got = await flood.call("POST", "/v1/jobs", json={"model": FATAL, "instances": [value] * 400_000})
            assert got.status_code == 202
            flood.accepted[got.json()["id"]] = value
        endings = await flood.endings(limit_s=120)
    assert {found["state"] for found in endings.values()} == {"failed"}


async def shrink(house: House, stream: Stream, max_bytes: int) -> None:
    """Less room, so that a bound is near."""
    found = (await house.bus.request_json(f"$JS.API.STREAM.INFO.{stream}"))["config"]
    small = found | {"max_bytes": max_bytes}
    await house.bus.request_json(f"$JS.API.STREAM.UPDATE.{stream}", small)


# ---------------------------------------------------------------------------------------- the console


async def log_in(client: httpx.AsyncClient, *passwords: str) -> list[httpx.Response]:
    """What one page's form answers the admin, with each of these passwords at once."""
    page = await client.get("/login")
    token = re.search('csrfmiddlewaretoken" value="([^"]+)', page.text)
    assert token
    form = {"username": "admin", "csrfmiddlewaretoken": token[1]}
    attempts = (client.post("/login", data={**form, "password": each}) for each in passwords)
    return await asyncio.gather(*attempts)


async def test_logins(scene: Scene, neighbour: Neighbour) -> None:
    house = scene.house
    counted = scene.counts('signalbox_console_login_refused_total{by="account"}', program="console")
    async with neighbour(), counted, scene.client(house.console_url) as stranger:
        answers = await log_in(stranger, *["wrong"] * 10)
        async with httpx.AsyncClient(base_url=house.console_url, timeout=LIMIT_S) as owner:
            (let_in,) = await log_in(owner, house.data.admin_password().read_text())
    assert let_in.status_code == 302
    assert {answer.status_code for answer in answers} <= {200, 503}  # the form again, or no place
    assert any("Too many failed logins" in answer.text for answer in answers)


async def test_filters(scene: Scene, neighbour: Neighbour) -> None:
    counted = scene.counts('signalbox_console_refused_total{route="api-jobs",status="400"}', program="console")
    async with neighbour(), counted, scene.house.operator(await scene.house.operator_token()) as client:
        for text in ("m" * 5_000, "m " * 900, "model:" + "a," * 50):
            got = await client.get("/api/jobs", params={"q": text})
            assert got.status_code == 400, got.text
            assert got.json()["code"] == "invalid_request"


async def test_uploads(scene: Scene, neighbour: Neighbour) -> None:
    counted = scene.counts("signalbox_console_bodies_refused_total", program="console")
    async with neighbour(), counted, scene.client(scene.house.console_url) as stranger:
        for path in ("/api/models/half/versions", "/models/-/upload"):
            got = await stranger.post(path, content=bytes(30_000_000))
            assert got.status_code == 413, got.text


async def test_websockets(scene: Scene, neighbour: Neighbour) -> None:
    house = scene.house
    counted = scene.counts('signalbox_console_live_closed_total{reason="too_many"}', program="console")
    async with httpx.AsyncClient(base_url=house.console_url, timeout=LIMIT_S) as client:
        (let_in,) = await log_in(client, house.data.admin_password().read_text())
        assert let_in.status_code == 302
        cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    url = house.console_url.replace("http://", "ws://") + "/ws/live"

    async def board() -> ClientConnection:
        headers = {"Cookie": cookies}
        return await connect(url, origin=house.console_url, additional_headers=headers)  # type: ignore[arg-type]  # a str, as it is sent

    async with neighbour() as answered, counted, asyncio.timeout(LIMIT_S):
        held = []
        for _ in range(TABS):
            held.append(await board())
            await held[-1].send(json.dumps({"t": "sub", "topics": ["lanes"]}))
            await held[-1].recv()
        last = await board()
        with suppress(ConnectionClosed):
            await last.recv()
        await answered()
        for one in held:
            await one.close()
    assert last.close_code == Close.TOO_MANY
