"""What an Idempotency-Key is worth when a write's answer is lost, or the write is refused."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway_plugin.gateway import Gateway
from gateway_plugin.proto.coprocess_pb2 import Object
from gateway_plugin.settings import GatewaySettings
from signalbox.program.errors import Ambiguous, SignalboxError, Unavailable
from signalbox.wire import jobids, names
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import encode
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Bucket
from tests.rigs.gateway import model
from verification.fuzz.dispatch import MemoryBus

CROWD = 30
"""Jobs of one account above which its next one goes to ``lo``."""
BODY = json.dumps({"model": "half", "input": {"x": [1.0]}}).encode()


class FaultyBus(MemoryBus):
    """Its next writes to a subject with this start fail; one that is ``kept`` is stored all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[tuple[str, SignalboxError, bool]] = []

    async def write(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        expect: int | None = None,
        **more: object,
    ) -> int:
        if self.faults and subject.startswith(self.faults[0][0]):
            _, error, is_kept = self.faults.pop(0)
            if is_kept:
                await super().write(subject, data, headers=headers, expect=expect, **more)
            raise error
        return await super().write(subject, data, headers=headers, expect=expect, **more)

    @property
    def jobs(self) -> list[str]:
        return [subject for subject in self.stored if subject.startswith("jobs.")]


@pytest.fixture
async def bus() -> FaultyBus:
    made = FaultyBus()
    key = ApiKey(id="mine", account_id="mine", hmac="", scopes=("jobs:submit",))
    await made.write(names.key(Bucket.KEYS, "mine"), encode(key))
    known: Model = model()
    await made.write(names.key(Bucket.MODELS, "half"), encode(known))
    return made


Answered = tuple[int, dict[str, str], Any]


@asynccontextmanager
async def started(bus: FaultyBus, *, after: int = 0) -> AsyncIterator[Gateway]:
    """A plugin that has just started and let so many jobs of the account in; else only the bus remembers."""
    gateway = await Gateway.start(bus, GatewaySettings(key_pepper="p"))  # type: ignore[arg-type]
    try:
        for _ in range(after):
            assert (await send(gateway))[0] == 202
        yield gateway
    finally:
        await gateway.close()


async def submit(bus: FaultyBus, name: str = "order-17") -> Answered:
    async with started(bus) as gateway:
        return await send(gateway, name)


async def send(gateway: Gateway, name: str = "", body: bytes = BODY) -> Answered:
    obj = Object(hook_name="SignalboxPost", metadata={"key_id": "mine"})
    obj.spec.update(APIID="signalbox", OrgID="signalbox")
    obj.request.method, obj.request.url, obj.request.raw_body = "POST", "/v1/jobs", body
    if name:
        obj.request.headers["Idempotency-Key"] = name
    overrides = (await gateway.dispatcher.dispatch(obj)).request.return_overrides
    doc = json.loads(overrides.response_body)
    return overrides.response_code, dict(overrides.headers), doc


@pytest.mark.parametrize("is_kept", [True, False])
async def test_after_an_unanswered_publish_the_job_s_id_is_given_and_a_retry_finds_it(
    bus: FaultyBus, is_kept: bool
) -> None:
    bus.faults = [("jobs.", Ambiguous(), is_kept and number == 0) for number in range(3)]
    if is_kept:  # the repeats of a write that was stored after all are told so
        del bus.faults[1:]
    status, headers, doc = await submit(bus)
    if is_kept:
        assert status == 202
    else:
        assert (status, doc["code"]) == (503, "ambiguous")
        assert int(headers["Retry-After"]) >= 1
    job_id = headers["X-Signalbox-Job-Id"]
    again, headers, _ = await submit(bus)
    assert (again, headers["X-Signalbox-Job-Id"]) == (202, job_id)
    assert len(bus.jobs) == 1


async def test_a_publish_that_certainly_failed_leaves_the_key_open_at_once(bus: FaultyBus) -> None:
    bus.faults = [("jobs.", Unavailable(), False)]
    status, _, _ = await submit(bus)
    assert status == 503
    assert bus.jobs == []
    status, headers, _ = await submit(bus)
    assert (status, len(bus.jobs)) == (202, 1)
    assert bus.jobs[0].endswith(headers["X-Signalbox-Job-Id"])


@pytest.mark.parametrize("is_kept", [True, False])
async def test_an_unanswered_first_record_is_settled_before_anything_is_published(
    bus: FaultyBus, is_kept: bool
) -> None:
    bus.faults = [("$KV.idem.", Ambiguous(), is_kept)]
    status, headers, _ = await submit(bus)
    assert (status, len(bus.jobs)) == (202, 1)
    assert (await submit(bus))[1]["X-Signalbox-Job-Id"] == headers["X-Signalbox-Job-Id"]


async def test_a_record_that_cannot_be_written_accepts_nothing(bus: FaultyBus) -> None:
    bus.faults = [("$KV.idem.", Unavailable(), False)]
    status, _, doc = await submit(bus)
    assert (status, doc["code"], bus.jobs) == (503, "unavailable", [])


@pytest.mark.parametrize("is_crowded", [False, True])
async def test_a_retry_goes_where_the_first_try_went_so_that_a_late_first_write_finds_it_there(
    bus: FaultyBus, is_crowded: bool
) -> None:
    lost = [("jobs.", Ambiguous(), False)] * 3
    async with started(bus, after=CROWD if is_crowded else 0) as first:
        bus.faults = list(lost)
        status, headers, _ = await send(first, "order-17")
    assert status == 503
    async with started(bus, after=0 if is_crowded else CROWD) as second:
        status, _, _ = await send(second, "order-17")
    assert status == 202
    job_id = headers["X-Signalbox-Job-Id"]
    late = names.job("half", "lo" if is_crowded else "mid", "mine", job_id)
    assert [subject for subject in bus.jobs if subject.endswith(job_id)] == [late]


async def test_after_a_crash_a_repeat_of_many_completes_the_rest_each_where_it_was_named_for(bus: FaultyBus) -> None:
    """The first call names five jobs, none of them for certain, and says nothing more."""
    many = json.dumps({"jobs": [json.loads(BODY)] * 5}).encode()
    bus.faults = [*[("jobs.", Ambiguous(), False)] * 6, *[("jobs.", Unavailable(), False)] * 2]
    bus.faults.append(("$KV.idem.", Unavailable(), False))  # what would say that the first call is over
    async with started(bus) as first:
        bus.faults.insert(0, ("$KV.idem.", Ambiguous(), True))  # it is named all the same
        _, _, doc = await send(first, "order-17", many)
    assert len(bus.jobs) == doc["accepted"] < 5
    assert (await submit_many(bus, many))[0] == 409, "it may still be under way"
    subject = next(name for name in bus.stored if name.startswith("$KV.idem."))
    bus.stored[subject] = bus.stored[subject]._replace(time=time.time() - 120.0)
    for _ in range(2):
        status, _, doc = await submit_many(bus, many, after=CROWD)
        assert (status, doc["accepted"]) == (200, 5)
        ids = [job["id"] for job in doc["jobs"]]
        assert ids == [jobids.job_id_after(ids[0], number) for number in range(5)]
        mine = [name for name in bus.jobs if names.job_of(name) in ids]
        assert sorted(mine) == sorted(names.job("half", "mid", "mine", job_id) for job_id in ids)


async def submit_many(bus: FaultyBus, body: bytes, *, after: int = 0) -> Answered:
    async with started(bus, after=after) as gateway:
        return await send(gateway, "order-17", body)
