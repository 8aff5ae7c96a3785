"""Makes the job of an admitted request and writes it: its fields, the place of its input, and the room for it."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gateway_plugin.admission.inputs import StoredInputs
from gateway_plugin.admission.instants import read_instant
from gateway_plugin.admission.results import ResultsRoom
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.prepared import PreparedVersion
from signalbox.bus.client import Bus
from signalbox.jobs import delayed, payloads
from signalbox.jobs.change import LONGEST_DEADLINE_S
from signalbox.jobs.inputs import tell_refused
from signalbox.jobs.message import submit
from signalbox.jobs.payloads import StoredInput
from signalbox.jobs.records import Records
from signalbox.program.errors import Ambiguous, InvalidRequest, SignalboxError
from signalbox.wire import names
from signalbox.wire.jobids import JobIds
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Job
from signalbox.wire.names import PRIORITIES, Priority
from signalbox.wire.workerdocs import Worker

_HEADER_BYTES: Final = 4096
"""Bytes allowed for a record beside its result; more than it takes."""


class SubmitOptions(NamedTuple):
    """What a request asks for beside its inputs. deadline_s: None = the model's own.

    not_before: UTC seconds, from which on the deadline counts; 0 = at once. webhook: empty = none.
    """

    priority: Priority = "mid"
    deadline_s: float | None = None
    tags: tuple[str, ...] = ()
    not_before: float = 0.0
    webhook: str = ""


def read_options(fields: Mapping[str, Any]) -> SubmitOptions:
    """``priority`` (hi, mid, lo), ``deadline_s``, ``tags`` and ``not_before`` of a body.

    Raises :class:`InvalidRequest`.
    """
    priority = fields.get("priority", "mid")
    if priority not in PRIORITIES:
        raise InvalidRequest(f'"priority" must be one of {", ".join(PRIORITIES)}.', field="priority")
    tags = _tags(fields.get("tags"))
    not_before = fields.get("not_before")
    not_before = read_instant("not_before", not_before) if not_before is not None else 0.0
    deadline = fields.get("deadline_s")
    if deadline is None:
        return SubmitOptions(priority, None, tags, not_before)
    if type(deadline) not in {int, float} or not 0 < deadline <= LONGEST_DEADLINE_S:
        raise InvalidRequest(
            f'"deadline_s" must be a number of seconds above 0 and at most {LONGEST_DEADLINE_S:.0f}.',
            field="deadline_s",
        )
    return SubmitOptions(priority, float(deadline), tags, not_before)


def _tags(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or not all(type(one) is str and names.TAG.match(one) for one in given):
        raise InvalidRequest(
            '"tags" must be an array of strings of at most 64 characters, each a letter or digit and then any of '
            "letters, digits and . _ : / = -",
            field="tags",
        )
    tags = tuple(dict.fromkeys(given))
    if len(tags) > names.MOST_TAGS:
        raise InvalidRequest(
            f'"tags" has {len(tags)}; a job has at most {names.MOST_TAGS}.', field="tags", limit=names.MOST_TAGS
        )
    return tags


class Submitter:
    """Makes jobs and writes them. max_stored_bytes: see :class:`StoredInputs`.

    results_kept_s, max_results_bytes, workers: see :class:`ResultsRoom`. wall: UTC clock, seconds. queued: messages in
    ``JOBS``, about.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        inline_limit_bytes: int = payloads.INLINE_LIMIT_BYTES,
        max_stored_bytes: int = 0,
        results_kept_s: float = 600.0,
        max_results_bytes: int = 0,
        workers: Callable[[], Iterable[Worker]] = tuple,
        wall: Callable[[], float] = time.time,
        queued: Callable[[], int] = int,
    ) -> None:
        self._bus = bus
        self._records = Records(bus)
        self._stored = StoredInputs(bus, most_bytes=max_stored_bytes)
        record_bytes = inline_limit_bytes + _HEADER_BYTES
        self._results = ResultsRoom(
            bus,
            record_bytes=record_bytes,
            kept_s=results_kept_s,
            workers=workers,
            most_bytes=max_results_bytes,
            wall=wall,
        )
        self._inline_limit = inline_limit_bytes
        self._wall = wall
        self._ids = JobIds(wall, queued)

    def job(
        self,
        key: ApiKey,
        ready: PreparedVersion,
        inputs: DecodedInputs,
        options: SubmitOptions,
        *,
        trace: str = "",
        waiter: str = "",
        job_id: str = "",
        is_short_lived: bool = False,
    ) -> Job:
        """The job for these inputs, not yet accepted.

        waiter: instance of the plugin that waits for it. job_id: empty = a new one.
        """
        now = self._wall()
        job_id = job_id or self._ids.new(is_short_lived=is_short_lived)
        model = ready.model
        return Job(
            id=job_id,
            model=model.name,
            version=ready.version.version,
            signature=inputs.signature,
            priority=options.priority,
            account_id=key.account_id,
            key_id=key.id,
            style=inputs.style,
            batch_key=inputs.batch_key,
            rows=inputs.rows,
            outputs=inputs.outputs,
            created_at=now,
            deadline_at=(options.not_before or now) + (options.deadline_s or model.limits.deadline_s),
            size_bytes=len(inputs.frame),
            reply=names.reply(waiter, job_id) if waiter else "",
            trace=trace,
            tags=options.tags,
            not_before=options.not_before,
            webhook=options.webhook,
        )

    async def close(self) -> None:
        """Wait for open questions. Idempotent."""
        await self._stored.close()
        await self._results.close()

    async def require_room(self, account: str, share_bytes: int = 0) -> None:
        """Raise as :meth:`ResultsRoom.require` where there is no room for records and results of an account's jobs."""
        await self._results.require(account, share_bytes)

    async def accept(self, job: Job, frame: bytes, *, share_bytes: int = 0) -> int | None:
        """Write the job; when this returns it is durable. Returns its sequence in ``JOBS``, None of a delayed one.

        share_bytes: what stored inputs of its account may take; 0 = what the setting gives every account. Raises
        :class:`LimitExceeded` past that share, and as :func:`submit` or :func:`delayed.accept`.
        """
        stored: StoredInput | None = None
        if job.not_before or len(frame) > self._inline_limit:
            async with self._stored.room(job.account_id, len(frame), share_bytes):
                stored = await payloads.store_input(self._bus, job, frame)
            job, frame = replace(job, ref=stored.ref), b""
        try:
            if job.not_before:
                await delayed.accept(self._bus, self._records, job, now=self._wall())
                return None
            return (await submit(self._bus, job, frame)).seq
        except Ambiguous:
            raise
        except SignalboxError:
            if stored is not None:
                tell_refused(self._bus, stored)
            raise
