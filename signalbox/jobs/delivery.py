"""The consumers that deliver jobs: one of each class (a model's jobs of one priority), made when it is first asked for.

A consumer is shared by all devices that serve the model, lives in the server's memory, and takes no acknowledgement:
what a dead worker or a lost connection swallowed is delivered again by deleting it and making it anew, from the class's
first message (ADR 0210). Each has in its metadata up to which sequence jobs may have been delivered before; their
records are to be read before they run. Its name ends in the fleet's generation of consumers: on a cluster the name of
one whose node is cut off is not free.

One begins at the class's first message: from there the server finds the class's next job, or that it has none, in its
list of subjects. From anywhere else it reads message after message, and takes nothing in meanwhile: 2 to 4 s of a
million.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from signalbox.bus.client import Bus, ConsumerInfo
from signalbox.program.errors import NotFound, SignalboxError
from signalbox.wire import assets, names
from signalbox.wire.names import PRIORITIES, Priority, Stream
from signalbox.wire.workerdocs import Worker

FEW: Final = 1_000
"""Jobs whose subjects are asked for in one question. Where there are more, each model is asked for its first one."""
_AT_ONCE: Final = 64
_BEYOND_ALL: Final = 1 << 40
"""Above every sequence, and where a list of subjects begins of which only the length is of interest."""
_EXISTS: Final = 10148
"""The server's code for a consumer that exists with another configuration: somebody else has just made it."""


def generation_of(workers: Iterable[Worker]) -> int:
    """The fleet's generation of consumers: the highest that a worker tells of."""
    return max((worker.generation for worker in workers), default=0)


async def state(bus: Bus, model: str, priority: Priority, generation: int) -> ConsumerInfo:
    """The state of a class's consumer, for who only reads. Raises :class:`Unavailable`.

    Where there is none nobody pulls: then all its jobs are counted, any of which may have been delivered before. That
    takes 1 ms for 1 000.
    """
    name = names.consumer(model, priority, generation)
    try:
        return await bus.consumer_info(name)
    except NotFound:
        total = await _count(bus, names.jobs_of(model, priority))
        return ConsumerInfo(name, total, num_waiting=0, delivered=0, delivered_stream_seq=0, examined_to=_BEYOND_ALL)


async def states(bus: Bus, model: str, generation: int) -> dict[Priority, ConsumerInfo]:
    """The state of a model's three consumers, as :func:`state`."""
    found = await asyncio.gather(*(state(bus, model, priority, generation) for priority in PRIORITIES))
    return dict(zip(PRIORITIES, found, strict=True))


async def find(bus: Bus, model: str, priority: Priority, generation: int) -> ConsumerInfo:
    """The state of a class's consumer, which is made where there is none. Raises :class:`Unavailable`."""
    name = names.consumer(model, priority, generation)
    try:
        return await bus.consumer_info(name)
    except NotFound:
        return await _make(bus, model, priority, generation, await _last_seq(bus))


async def find_all(bus: Bus, model: str, generation: int) -> dict[Priority, ConsumerInfo]:
    """The state of a model's three consumers, as :func:`find`."""
    found = await asyncio.gather(*(find(bus, model, priority, generation) for priority in PRIORITIES))
    return dict(zip(PRIORITIES, found, strict=True))


async def make_anew(bus: Bus, model: str, priority: Priority, generation: int) -> ConsumerInfo:
    """Delete a class's consumer and make it again, so that all its jobs that have not ended are delivered again.

    Requests parked at the old one end with status 409 and get nothing from the new one. Raises :class:`Unavailable`.
    """
    name = names.consumer(model, priority, generation)
    try:
        known = await bus.consumer_info(name)
        await bus.request_json(f"$JS.API.CONSUMER.DELETE.{Stream.JOBS}.{name}")
        examined_to = max(known.examined_to, known.delivered_stream_seq)
    except NotFound:
        examined_to = await _last_seq(bus)
    return await _make(bus, model, priority, generation, examined_to)


async def make_all_anew(bus: Bus, model: str, generation: int) -> dict[Priority, ConsumerInfo]:
    """Make a model's three consumers again, as :func:`make_anew`."""
    made = await asyncio.gather(*(make_anew(bus, model, priority, generation) for priority in PRIORITIES))
    return dict(zip(PRIORITIES, made, strict=True))


async def queued_models(bus: Bus, models: Collection[str]) -> set[str]:
    """Those of the models that have a job in ``JOBS``, ended or not. Raises :class:`Unavailable`."""
    if not models:
        return set()
    jobs = f"$JS.API.STREAM.INFO.{Stream.JOBS}"
    messages = (await bus.request_json(jobs))["state"]["messages"]
    if not messages:
        return set()
    if messages <= FEW:
        stored = (await bus.request_json(jobs, {"subjects_filter": "jobs.>"}))["state"].get("subjects") or {}
        there = {names.class_of(subject)[0] for subject in stored}
        return {model for model in models if names.token(model) in there}
    found: set[str] = set()
    asked = sorted(models)
    for start in range(0, len(asked), _AT_ONCE):
        part = asked[start : start + _AT_ONCE]
        answers = await asyncio.gather(*(_has_job(bus, model) for model in part))
        found.update(model for model, has_job in zip(part, answers, strict=True) if has_job)
    return found


async def stored(bus: Bus, model: str) -> tuple[int, list[str]]:
    """How many jobs of a model ``JOBS`` holds, delivered or not, ended a moment ago or not; and their ids, where they
    are few. Raises :class:`Unavailable`."""
    subject = names.jobs_of_model(model)
    total = await _count(bus, subject)
    if not 0 < total <= FEW:
        return total, []
    answer = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}", {"subjects_filter": subject})
    return total, [names.job_of(found) for found in answer["state"].get("subjects") or {}]


async def _count(bus: Bus, subject: str) -> int:
    """Subjects in ``JOBS`` that match: each is one job's."""
    ask = {"subjects_filter": subject, "offset": _BEYOND_ALL}
    return int((await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}", ask)).get("total", 0))


async def _has_job(bus: Bus, model: str) -> bool:
    ask = {"seq": 1, "next_by_subj": names.jobs_of_model(model)}
    try:
        await bus.request_json(f"$JS.API.STREAM.MSG.GET.{Stream.JOBS}", ask)
    except NotFound:
        return False
    return True


async def _make(bus: Bus, model: str, priority: Priority, generation: int, examined_to: int) -> ConsumerInfo:
    name, subject = names.consumer(model, priority, generation), names.jobs_of(model, priority)
    # Who had no request parked at the old one does not see that it is gone.
    await bus.publish(names.anew(model, priority), b"%d" % examined_to)
    config = assets.consumer(name, subject, examined_to=examined_to)
    try:
        made = await bus.request_json(
            f"$JS.API.CONSUMER.CREATE.{Stream.JOBS}.{name}.{subject}",
            {"stream_name": Stream.JOBS.value, "config": config, "action": "create"},
        )
    except SignalboxError as error:
        if error.facts.get("err_code") != _EXISTS:
            raise
        return await bus.consumer_info(name)
    return ConsumerInfo.of(made)


async def _last_seq(bus: Bus) -> int:
    """For a consumer that knows of no earlier one: any job that is there now may have been delivered."""
    return int((await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}"))["state"]["last_seq"])
