"""Bad input through the front of a whole stack: refused in the caller's protocol, and queued nowhere."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from signalbox.bus import table
from signalbox.jobs import delivery
from signalbox.program import keys
from signalbox.wire.messages import Desired, Limits
from signalbox.wire.names import Bucket
from tests.rigs import models, outage
from tests.rigs.outage import Caller, House, becomes, floats

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMIT_BYTES = 64
MOST_QUEUED = 3


@dataclass
class Front:
    """The front of a stack with one worker, and callers with keys it knows."""

    house: House
    good: Caller
    reader: Caller
    wrong: Caller
    keyless: Caller

    async def pause(self, model: str, *, is_paused: bool) -> None:
        """As an operator does. A pause holds once the worker asks for none of the model's jobs."""
        await table.put(self.house.bus, Bucket.DESIRED, f"model.{model}", Desired(is_paused=is_paused))
        if is_paused:
            await becomes(lambda: self._is_not_asked(model))

    async def _is_not_asked(self, model: str) -> bool:
        infos = await delivery.find_all(self.house.bus, model, 0)
        return not any(info.num_waiting for info in infos.values())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    async with outage.house(tmp_path_factory.mktemp("refusals") / "data") as house:
        await house.add_model("half", models.half_plus_two(), floats(), limits=Limits(max_payload_bytes=LIMIT_BYTES))
        await house.add_model("narrow", models.half_plus_two(), floats(), limits=Limits(max_queue=MOST_QUEUED))
        texts = (await house.add_key(), await house.add_key(scopes=("jobs:read",)), keys.mint("test")[0], "")
        await house.start_worker(1)
        async with (
            house.caller(texts[0]) as good,
            house.caller(texts[1]) as reader,
            house.caller(texts[2]) as wrong,
            house.caller(texts[3]) as keyless,
        ):
            await becomes(lambda: works(good), limit_s=90)
            yield Front(house, good, reader, wrong, keyless)


async def works(caller: Caller, model: str = "half") -> bool:
    return await caller.predict(model, 4.0) == 200


@dataclass
class Bad:
    """A request that is refused. words: what the answer must say. by: who sends it."""

    status: int
    words: tuple[str, ...]
    model: str = "half"
    rows: Any = (1.0,)
    cut: int = 0
    by: str = "good"


BAD = {
    "unknown model": Bad(404, ("absent",), model="absent"),
    "malformed JSON": Bad(400, ("offset",), cut=2),
    "no tensor": Bad(400, ('"x"', "expected a list of 1", "got a list of 2"), rows=[[1.0], [1.0, 2.0]]),
    "wrong dtype": Bad(400, ('"x"', "expected float32", "got a string"), rows=["one"]),
    "too large": Bad(413, (f"at most {LIMIT_BYTES}",), rows=[1.0] * 17),
    "missing key": Bad(401, ("key",), by="keyless"),
    "wrong key": Bad(401, ("key",), by="wrong"),
    "key without scope": Bad(403, ("jobs:submit",), by="reader"),
}


@pytest.mark.parametrize("path", ["tensorflow serving", "ours"])
@pytest.mark.parametrize("what", BAD)
async def test_bad_input_is_refused_in_the_protocol_spoken_and_queued_nowhere(
    front: Front, what: str, path: str
) -> None:
    bad, is_ours = BAD[what], path == "ours"
    doc = {"model": bad.model} if is_ours else {}
    body = json.dumps({**doc, "instances": list(bad.rows)}).encode()
    was = await front.house.last_job()
    caller: Caller = getattr(front, bad.by)
    where = "/v1/jobs" if is_ours else f"/v1/models/{bad.model}:predict"
    got = await caller.call("POST", where, content=body[: len(body) - bad.cut])
    assert got.status_code == bad.status, got.text
    said = as_problem(got) if is_ours else as_serving(got)
    for words in bad.words:
        assert words in said
    assert await front.house.last_job() == was
    assert await works(front.good)
    assert not front.good.wrong


def as_serving(got: httpx.Response) -> str:
    """The words of an error as TensorFlow Serving writes them."""
    assert got.headers["content-type"] == "application/json"
    doc = got.json()
    assert list(doc) == ["error"]
    return str(doc["error"])


def as_problem(got: httpx.Response) -> str:
    """The words of an error as RFC 9457 has them."""
    assert got.headers["content-type"] == "application/problem+json"
    doc = got.json()
    assert doc["status"] == got.status_code
    assert {"type", "title", "code"} <= set(doc)
    return str(doc["detail"])


async def test_a_body_larger_than_the_front_takes_is_413_and_the_next_call_works(front: Front) -> None:
    conf = json.loads((Path(__file__).parents[2] / "tyk" / "tyk.conf").read_text())
    body = b" " * (conf["http_server_options"]["max_request_body_size"] + 1)
    was = await front.house.last_job()
    got = await front.good.call("POST", "/v1/models/half:predict", content=body)
    assert got.status_code == 413
    assert "too large" in got.text.lower()
    assert await front.house.last_job() == was
    assert await works(front.good)


async def test_a_full_queue_is_429_and_what_was_taken_before_runs(front: Front) -> None:
    house = front.house
    async with house.caller(await house.add_key()) as caller:
        await becomes(lambda: works(caller, "narrow"))
        await front.pause("narrow", is_paused=True)
        was = await house.last_job()
        await becomes(lambda: is_refused(caller))
        taken = await house.last_job() - was
        assert taken == len(caller.accepted) >= MOST_QUEUED
        ours = await caller.call("POST", "/v1/jobs", json={"model": "narrow", "instances": [1.0]})
        serving = await caller.call("POST", "/v1/models/narrow:predict", json={"instances": [1.0]})
        assert (ours.status_code, serving.status_code) == (429, 429)
        assert "full" in as_problem(ours)
        assert "full" in as_serving(serving)
        assert min(int(got.headers["retry-after"]) for got in (ours, serving)) >= 1
        assert await house.last_job() == was + taken
        await front.pause("narrow", is_paused=False)
        endings = await caller.endings()
        assert {found["state"] for found in endings.values()} == {"succeeded"}
        assert caller.statuses("submit") == {202, 429}


async def is_refused(caller: Caller) -> bool:
    return await caller.submit("narrow", 1.0) == 429


async def test_a_job_whose_deadline_passed_while_it_waited_is_410_and_never_runs(front: Front) -> None:
    await becomes(lambda: works(front.good, "narrow"))
    await front.pause("narrow", is_paused=True)
    body = {"model": "narrow", "instances": [1.0], "deadline_s": 0.2}
    accepted = await front.good.call("POST", "/v1/jobs", json=body)
    assert accepted.status_code == 202
    where = accepted.headers["location"]

    async def is_gone() -> bool:
        return (await front.good.call("GET", where)).status_code == 410

    await becomes(is_gone)
    await front.pause("narrow", is_paused=False)
    await becomes(lambda: works(front.good, "narrow"))
    got = await front.good.call("GET", where)
    assert got.status_code == 410
    assert "deadline" in as_problem(got)
    assert got.json()["code"] == "expired"
