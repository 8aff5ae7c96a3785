"""Traces of jobs that have ended, exported over OTLP/HTTP: made from their records, so that no job's path changes.

A job's span stands under the span of its caller (``traceparent``), and has one span below it for each part of its time
(:mod:`signalbox.jobs.times`). Ids are made of the job's own, so that a record that is read twice gives the same spans.
Kept are those that their callers sample, and whatever they say those that failed or were slow: what that is, is known
exactly, as all have ended. Sources: W3C Trace Context; OpenTelemetry's conventions for messaging spans.

Imported only where an endpoint is configured (the extra ``traces``).
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from gateway_plugin.outbound import gauges
from signalbox import __version__
from signalbox.jobs import times
from signalbox.wire.messages import Record, State

_DESTINATION: Final = "jobs.{model}.{priority}.{account}.{slot}.{id}"
"""Template of a queued job's subject: names of spans hold no ids."""
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_QUEUE_SPANS: Final = 16_384
_MOST_LINKS: Final = 32
_NS: Final = 1_000_000_000
_SAME_S: Final = 0.001
"""Instants of one run, as each of its jobs' records gives it, differ by the rounding of their parts."""


class TraceExporter:
    """Sends the traces of jobs to a collector, from a thread of its own; what it cannot send is counted and dropped.

    url: of OTLP/HTTP, ``http://host:4318/v1/traces``. slow_s: a job that took longer is kept whatever its caller says;
    0 = it is not. headers: that it is sent, by name; without any, those that the SDK's own variables say.
    """

    def __init__(self, url: str, *, slow_s: float, headers: Mapping[str, str]) -> None:
        self._slow_s = slow_s
        self._resource = Resource.create({"service.name": "signalbox", "service.version": __version__})
        self._exporter = _Counted(OTLPSpanExporter(endpoint=url, headers=headers or None))
        self._processor = BatchSpanProcessor(self._exporter, max_queue_size=_QUEUE_SPANS)
        self._handed = 0

    def export(self, records: Sequence[Record]) -> None:
        """Hand over the traces of those among these jobs, all ended, that are kept."""
        kept = [record for record in records if self._is_kept(record)]
        for run in _runs(kept):
            contexts = {record.id: _context(record) for record in run}
            for record in run:
                others = [Link(context) for job_id, context in contexts.items() if job_id != record.id]
                self._hand(list(self._spans(record, contexts[record.id], others[:_MOST_LINKS])))

    def close(self) -> None:
        """Send what waits, for at most some seconds; blocks. Idempotent."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def _hand(self, spans: Sequence[ReadableSpan]) -> None:
        """Have the spans of one job sent, where there is room for all of them: the SDK would drop others uncounted."""
        if self._handed - self._exporter.done + len(spans) > _QUEUE_SPANS:
            gauges.SPANS.labels("dropped").inc(len(spans))
            return
        self._handed += len(spans)
        for span in spans:
            self._processor.on_end(span)

    def _is_kept(self, record: Record) -> bool:
        if record.state not in {State.SUCCEEDED, State.CANCELLED} or _is_sampled(record.trace):
            return True
        return bool(self._slow_s) and _ended_at(record) - record.created_at > self._slow_s

    def _spans(self, record: Record, context: SpanContext, links: Sequence[Link]) -> Iterable[ReadableSpan]:
        error = record.error
        failed = Status(StatusCode.ERROR, error.message) if error is not None else Status(StatusCode.UNSET)
        yield ReadableSpan(
            f"process {_DESTINATION}",
            context=context,
            parent=_parent(record),
            resource=self._resource,
            attributes=_attributes(record),
            links=links,
            kind=SpanKind.CONSUMER,
            status=failed,
            start_time=_ns(record.created_at),
            end_time=_ns(_ended_at(record)),
        )
        for attempt in times.attempts(record):
            for part in attempt.parts:
                yield ReadableSpan(
                    part.name,
                    context=_child(context, f"{record.id} {attempt.number} {part.name}"),
                    parent=context,
                    resource=self._resource,
                    attributes={
                        "signalbox.attempt": attempt.number,
                        "signalbox.worker": attempt.worker,
                        "signalbox.gpu": attempt.gpu,
                    },
                    start_time=_ns(record.created_at + part.start_ms / 1000),
                    end_time=_ns(record.created_at + part.end_ms / 1000),
                )


class _Counted(SpanExporter):
    """An exporter whose outcomes are counted. done: spans that it was given, whatever came of them."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.done = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send these; blocks."""
        outcome = SpanExportResult.FAILURE
        try:
            outcome = self._inner.export(spans)
        finally:
            self.done += len(spans)
            gauges.SPANS.labels("sent" if outcome is SpanExportResult.SUCCESS else "failed").inc(len(spans))
        return outcome

    def shutdown(self) -> None:
        """Send nothing more."""
        self._inner.shutdown()


def _runs(records: Sequence[Record]) -> Iterable[list[Record]]:
    """The jobs that ran together, as far as they are among these, each job in one list."""
    runs: list[tuple[object, float, list[Record]]] = []
    for record in records:
        started = times.started_ms(record.phases)
        if record.batch > 1 and started is not None:
            run, at = (record.gpu, record.token, record.model, record.version), record.created_at + started / 1000
            known = next((jobs for what, when, jobs in runs if what == run and abs(when - at) <= _SAME_S), None)
            if known is None:
                runs.append((run, at, [record]))
            else:
                known.append(record)
        else:
            runs.append((None, 0.0, [record]))
    return (jobs for _, _, jobs in runs)


def _attributes(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messaging.system": "nats",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.template": _DESTINATION,
        "messaging.message.id": record.id,
        "messaging.message.body.size": record.input_bytes,
        "signalbox.account": record.account_id,
        "signalbox.attempt": record.attempt,
        "signalbox.gpu": record.gpu,
        "signalbox.model": record.model,
        "signalbox.priority": record.priority,
        "signalbox.signature": record.signature,
        "signalbox.state": record.state.value,
        "signalbox.version": record.version,
        "signalbox.worker": record.worker,
    }
    if record.batch > 1:
        found["messaging.batch.message_count"] = record.batch
    if record.error is not None:
        found["error.type"] = record.error.code
    return found


def _context(record: Record) -> SpanContext:
    """The job's own span. A job without a caller's trace has one that is made of its id."""
    trace = _fields(record.trace)
    trace_id = int(trace[1], 16) if trace else _number(record.id, 16)
    return SpanContext(trace_id, _number(f"{record.id} job", 8), is_remote=False, trace_flags=_SAMPLED)


def _child(context: SpanContext, name: str) -> SpanContext:
    return SpanContext(context.trace_id, _number(name, 8), is_remote=False, trace_flags=_SAMPLED)


def _parent(record: Record) -> SpanContext | None:
    trace = _fields(record.trace)
    if not trace:
        return None
    return SpanContext(int(trace[1], 16), int(trace[2], 16), is_remote=True, trace_flags=_SAMPLED)


def _is_sampled(trace: str) -> bool:
    fields = _fields(trace)
    return bool(fields) and bool(int(fields[3], 16) & TraceFlags.SAMPLED)


def _fields(trace: str) -> list[str]:
    """Version, trace, span and flags of a ``traceparent`` that was checked before; empty for none."""
    return trace.split("-")[:4] if trace else []


def _number(text: str, size: int) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:size], "big")


def _ended_at(record: Record) -> float:
    return record.finished_at or record.created_at


def _ns(at: float) -> int:
    return int(at * 1_000_000) * (_NS // 1_000_000)
