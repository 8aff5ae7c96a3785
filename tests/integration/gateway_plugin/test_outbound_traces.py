"""Traces of ended jobs come to a collector over OTLP/HTTP: which ones, under whose span, with which parts."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway_plugin.outbound import traces
from gateway_plugin.outbound.settings import PREFIX, OutboundSettings
from signalbox.bus.client import Bus
from signalbox.jobs import times
from signalbox.program import settings
from signalbox.program.errors import Misconfigured
from signalbox.program.metrics import REGISTRY
from tests.rigs.ends import EndsRig
from tests.rigs.natsserver import NatsServer
from tests.rigs.receiver import Receiver, silence

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{CALLER}-01", f"00-{TRACE}-{CALLER}-00"


class Collector(Receiver):
    """Takes OTLP over HTTP."""

    def spans(self) -> list[Span]:
        """What has come so far."""
        found: list[Span] = []
        for one in self.received:
            request = ExportTraceServiceRequest.FromString(one.body)
            found += [span for each in request.resource_spans for scope in each.scope_spans for span in scope.spans]
        return found

    async def until(self, jobs: int) -> list[Span]:
        """All spans, as soon as so many jobs have theirs."""
        number = 0
        while (
            len({_of(span)["messaging.message.id"] for span in self.spans() if span.kind == Span.SPAN_KIND_CONSUMER})
            < jobs
        ):
            number += 1
            await self.count(number)
        return self.spans()


@pytest.fixture
async def rig(bus: Bus, nats: NatsServer) -> AsyncIterator[EndsRig]:
    async with EndsRig.on(bus, nats.url) as made:
        yield made


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    async with Collector().serving() as made:
        assert isinstance(made, Collector)
        yield made


async def test_a_sampled_job_is_a_span_under_its_caller_s_with_one_below_it_for_each_part(
    rig: EndsRig, collector: Collector
) -> None:
    await _following(rig, collector)
    job = await rig.ended(trace=SAMPLED)
    spans = await collector.until(1)
    (root,) = (span for span in spans if span.kind == Span.SPAN_KIND_CONSUMER)
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, CALLER)
    assert root.name == "process jobs.{model}.{priority}.{account}.{slot}.{id}"
    said = _of(root)
    assert (said["messaging.system"], said["messaging.message.id"]) == ("nats", job.id)
    assert (said["signalbox.model"], said["signalbox.state"]) == ("half", "succeeded")
    found = await rig.records.find(job.id)
    assert found is not None
    parts = [part for attempt in times.attempts(found.record) for part in attempt.parts]
    below = [span for span in spans if span is not root]
    assert [span.name for span in below] == [part.name for part in parts]
    assert {span.parent_span_id for span in below} == {root.span_id}
    assert {span.trace_id for span in below} == {root.trace_id}
    assert root.start_time_unix_nano // 1000 == int(found.record.created_at * 1_000_000)
    for span, part in zip(below, parts, strict=True):
        took_ms = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
        assert took_ms == pytest.approx(part.end_ms - part.start_ms, abs=0.01)
    assert below[-1].end_time_unix_nano / 1e9 == pytest.approx(root.end_time_unix_nano / 1e9, abs=1e-4)


async def test_failed_and_slow_jobs_are_kept_whatever_their_callers_sample(rig: EndsRig, collector: Collector) -> None:
    await _following(rig, collector, traces_slow_s=60.0)
    await rig.ended(trace=UNSAMPLED)
    await rig.ended()
    slow = await rig.ended(trace=UNSAMPLED, created_at=time.time() - 100.0)
    failed = await rig.ended(error="No such thing.")
    last = await rig.ended(trace=SAMPLED)
    spans = _by_job(await collector.until(3))
    assert set(spans) == {slow.id, failed.id, last.id}
    assert spans[failed.id].status.code == Status.STATUS_CODE_ERROR
    assert _of(spans[failed.id])["error.type"] == "model_error"
    assert not spans[failed.id].parent_span_id
    assert spans[failed.id].trace_id.hex() != TRACE


async def test_a_record_that_is_read_twice_gives_the_spans_it_gave(rig: EndsRig, collector: Collector) -> None:
    await rig.subscribe()
    first = await _following(rig, collector)
    job = await rig.ended(trace=SAMPLED)
    before = {span.span_id for span in await collector.until(1)}
    await rig.kill(first)
    collector.received.clear()
    await rig.rewind(job)
    await _following(rig, collector)
    assert {span.span_id for span in await collector.until(1)} == before


async def test_jobs_that_ran_together_are_linked(rig: EndsRig, collector: Collector) -> None:
    await rig.subscribe()
    at = time.time()
    jobs = [await rig.ended(trace=SAMPLED, batch=3, run_at=at, created_at=at - 0.1 * number) for number in range(3)]
    alone = await rig.ended(trace=SAMPLED)
    await _following(rig, collector)
    spans = _by_job(await collector.until(4))
    assert not spans[alone.id].links
    for job in jobs:
        others = {spans[other.id].span_id for other in jobs if other.id != job.id}
        assert {link.span_id for link in spans[job.id].links} == others
        assert _of(spans[job.id])["messaging.batch.message_count"] == 3


async def test_a_collector_that_is_away_keeps_no_end_back(rig: EndsRig, collector: Collector) -> None:
    await rig.subscribe()
    await rig.follow(traces_url="http://127.0.0.1:9/v1/traces")
    await rig.ended(trace=SAMPLED)
    assert len(await rig.until(1)) == 1


async def test_a_collector_is_sent_the_headers_that_the_setting_has(rig: EndsRig, collector: Collector) -> None:
    await _following(rig, collector, traces_headers="Authorization=Bearer%20abc%2Cdef==, x-scope = signalbox")
    await rig.ended(trace=SAMPLED)
    await collector.until(1)
    headers = collector.received[0].headers
    assert (headers["authorization"], headers["x-scope"]) == ("Bearer abc,def==", "signalbox")


@pytest.mark.parametrize("text", ["Bearer abc", "authorization=", "a=b,c", "bad name=b", "a=b%0d%0ac"])
def test_headers_that_cannot_be_sent_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(Misconfigured, match="SIGNALBOX_OUTBOUND_TRACES_HEADERS wants name=value") as refused:
        settings.load(OutboundSettings, PREFIX, {"SIGNALBOX_OUTBOUND_TRACES_HEADERS": text})
    assert text not in str(refused.value)


async def test_traces_for_which_a_slow_collector_leaves_no_room_are_counted_too(
    rig: EndsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "_QUEUE_SPANS", 8)
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    before = _counted()
    async with Collector(silence).serving() as slow:
        await rig.subscribe()
        task = await rig.follow(traces_url=slow.url.partition("?")[0])
        jobs = [await rig.ended(trace=SAMPLED) for _ in range(20)]
        await rig.until_past(jobs[-1])  # and stopped at once: traces of what is done are not forgotten
        await rig.stop(task)
    parts = 0
    for job in jobs:
        found = await rig.records.find(job.id)
        assert found is not None
        parts += 1 + sum(len(attempt.parts) for attempt in times.attempts(found.record))
    after = _counted()
    assert after["dropped"] > before["dropped"]
    assert sum(after.values()) - sum(before.values()) == parts, "each span is sent, failed, or dropped"


async def _following(rig: EndsRig, collector: Collector, **settings: Any) -> "asyncio.Task[None]":
    """A follower that reads."""
    task = await rig.follow(traces_url=collector.url.partition("?")[0], **settings)
    await rig.is_reading()
    return task


def _counted() -> dict[str, float]:
    """Spans by what became of them."""
    name = "signalbox_outbound_spans_total"
    return {one: REGISTRY.get_sample_value(name, {"outcome": one}) or 0.0 for one in ("sent", "failed", "dropped")}


def _of(span: Span) -> dict[str, Any]:
    found = {}
    for each in span.attributes:
        value = each.value
        found[each.key] = getattr(value, str(value.WhichOneof("value")))
    return found


def _by_job(spans: list[Span]) -> dict[str, Span]:
    """The jobs' own spans."""
    return {_of(span)["messaging.message.id"]: span for span in spans if span.kind == Span.SPAN_KIND_CONSUMER}
