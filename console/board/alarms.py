"""Rules for the board's alarms. Pure; nothing to configure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from console.board.causes import grouped, hint
from console.board.rollouts import Pending, RolledBack, Unlike
from console.board.rows import Alarm, LaneRow, Queue, WorkerRow
from signalbox.program.words import counted

OLDEST_S: Final = 60.0
"""Seconds a job may wait before an alarm stands."""
LEASE_LOW: Final = 0.2
"""A lease with less of its time left than this has missed renewals."""
BEHIND_S: Final = 5.0
"""Seconds that another model's run or load may keep prefetched jobs waiting before an alarm stands."""
_NOT_YET: Final = frozenset({"starting", "draining", "drained"})
"""States of workers that serve nothing, or will not for long."""
IDLE_S: Final = 10.0
"""Seconds that a holder may compute nothing while jobs it could run wait, before it counts as not serving."""


def find(
    lanes: Sequence[LaneRow],
    queues: Mapping[str, Queue],
    workers: Sequence[WorkerRow],
    now: float,
    held_back: Iterable[Pending] = (),
    rolled_back: Iterable[RolledBack] = (),
    unlike: Iterable[Unlike] = (),
    *,
    wanted: int | None = None,
    is_starting: bool = False,
) -> dict[str, Alarm]:
    """Every alarm that stands now, those of one cause as one, by a key that stays the same while it stands; since when
    is not known here.

    wanted: devices that shall have workers, None = all. is_starting: a host's agent starts a worker.
    """
    lost = {w.id for w in workers if w.state == "lost"}
    alive = [w for w in workers if w.state != "lost"]
    coming = {loaded.model for worker in alive for loaded in worker.models if loaded.state == "fetching"}
    found: dict[str, Alarm] = {}
    for lane in lanes:
        _lane(lane, lost, now, found)
        _idle(lane, queues, coming, now, found)
    for model, queue in queues.items():
        _queue(model, queue, alive, now, found, is_starting=is_starting)
    if alive and wanted != 0 and all(worker.state in {"draining", "drained"} for worker in alive):
        text = "Every worker drains: no job runs until one is resumed, or another one starts."
        found["drained"] = Alarm("error", text, href="/workers")
    for worker in alive:
        for loaded in worker.models:
            if loaded.state == "failed":
                text = f"{loaded.model}:{loaded.version} does not load on {worker.id}: {loaded.error}"
                found[f"load:{worker.id}:{loaded.model}"] = Alarm(
                    "error",
                    text,
                    href=f"/models/{loaded.model}",
                    what=f"{loaded.model}:{loaded.version} on {worker.id}",
                )
            elif loaded.state == "fetching" and loaded.error:
                host = worker.host.partition("/")[0]  # what follows is its boot
                text = f"{loaded.model}:{loaded.version} cannot be fetched to host {host}: {loaded.error}"
                found[f"fetch:{host}:{loaded.model}"] = Alarm(
                    "warning", text, href=f"/models/{loaded.model}", what=f"{loaded.model}:{loaded.version} to {host}"
                )
    for rollout in held_back:
        what = f"label {rollout.label}" if rollout.label else "requests without a version"
        text = (
            f"{rollout.model}:{rollout.new} does not load: {what} stay with version {rollout.old}."
            " Mend it and publish the model again (a change of any setting does), or choose another version."
        )
        found[f"rollout:{rollout.model}:{rollout.label}"] = Alarm(
            "error", text, href=f"/models/{rollout.model}", what=f"{rollout.model}:{rollout.new}"
        )
    for split in rolled_back:
        what = f"label {split.label}" if split.label else "the default"
        text = (
            f"{split.model}:{split.candidate} was rolled back by itself; part of {what} got it. {split.why}"
            " The model's page has the figures, and ends the split."
        )
        found[f"split:{split.model}:{split.label}"] = Alarm(
            "error", text, href=f"/models/{split.model}", what=f"{split.model}:{split.candidate}"
        )
    for one in unlike:
        text = f"{one.model}:{one.candidate} does not answer as the version in whose shadow it runs. {one.why}"
        found[f"shadow:{one.model}:{one.label}"] = Alarm(
            "warning", text, href=f"/models/{one.model}", what=f"{one.model}:{one.candidate}"
        )
    return grouped({key: replace(alarm, hint=hint(key)) for key, alarm in found.items()})


def device_page(gpu: str) -> str:
    """Path of a device's page."""
    return f"/workers/-/devices/{quote(gpu, safe='')}"


def _lane(lane: LaneRow, lost: set[str], now: float, found: dict[str, Alarm]) -> None:
    name = f"{lane.name} ({lane.host})" if lane.host else lane.name
    href = device_page(lane.gpu)
    if lane.state == "expired":
        found[f"expired:{lane.gpu}"] = Alarm(
            "error", f"The lease on {name} ran out and no worker has taken it over.", href=href, what=name
        )
    elif lane.state == "held" and lane.holder in lost:
        found[f"lost:{lane.gpu}"] = Alarm(
            "error", f"{name} is held by {lane.holder}, which is lost.", href=href, what=name
        )
    elif lane.state == "held" and lane.ttl_s and lane.expires_at - now < LEASE_LOW * lane.ttl_s:
        found[f"low:{lane.gpu}"] = Alarm(
            "warning", f"The lease on {name} was not renewed in time; it will run out.", href=href, what=name
        )


def _idle(lane: LaneRow, queues: Mapping[str, Queue], coming: set[str], now: float, found: dict[str, Alarm]) -> None:
    """A GPU that is held and idle while jobs of a model in its memory wait, and not for a version that is fetched."""
    if lane.activity != "idle" or now - lane.idle_since < IDLE_S:
        return
    resident = {name.rpartition(":")[0] for name in lane.models} - coming
    for model, queue in queues.items():
        is_old = queue.oldest_at is not None and now - queue.oldest_at > IDLE_S
        if is_old and model in resident and queue.is_enabled and not queue.is_paused:
            text = f"{lane.holder} holds {lane.name} and computes nothing while jobs of {model} wait."
            found[f"idle:{lane.gpu}"] = Alarm("error", text, href=device_page(lane.gpu), what=lane.name)
            return


def _waiting(queue: Queue) -> str:
    """What waits for a model, its services' queues included."""
    jobs = [counted(queue.waiting, "job waits", "jobs wait")] if queue.waiting else []
    items = [counted(queue.items, "item waits in a queue", "items wait in queues")] if queue.items else []
    return ", ".join(jobs + items)


def _queue(
    model: str, queue: Queue, alive: Sequence[WorkerRow], now: float, found: dict[str, Alarm], *, is_starting: bool
) -> None:
    href = f"/models/{model}"
    if queue.lost:
        they_run = "it runs" if queue.lost == 1 else "they run"
        text = (
            f"{counted(queue.lost, 'job')} of {model} ran on a worker that is gone; {they_run} again when a worker"
            f" serves {model}."
        )
        found[f"lost-jobs:{model}"] = Alarm("error", text, href=f"/jobs?state=running&q=model:{model}", what=model)
    if (queue.waiting or queue.items) and queue.is_paused:
        text = f"{model} is paused and {_waiting(queue)}."
        found[f"paused:{model}"] = Alarm("warning", text, href=href, what=model)
    elif (queue.waiting or queue.items) and not (queue.ready or queue.loading or queue.fetching):
        reason, level = "no worker runs" if not alive else "no worker serves it", "error"
        if queue.is_known and not queue.replicas:
            reason = "it has no replicas"
        elif is_starting and all(worker.state in _NOT_YET for worker in alive):  # the first, of a fleet that had none
            reason, level = "a worker is being started", "warning"
        text = f"{model}: {_waiting(queue)} and {reason}.{_overdue(queue, now)}"
        found[f"unserved:{model}"] = Alarm(level, text, href=href, what=model)
    elif queue.oldest_at is not None and now - queue.oldest_at > OLDEST_S:
        text = f"The oldest job of {model} has waited more than a minute.{_overdue(queue, now)}"
        found[f"old:{model}"] = Alarm("warning", text, href=href, what=model)
    elif queue.behind and now - queue.behind_since > BEHIND_S:
        text = (
            f"Jobs of {model} wait behind {queue.behind}, which has kept the GPU busy for more"
            f" than {BEHIND_S:.0f} seconds."
        )
        found[f"behind:{model}"] = Alarm("warning", text, href=href, what=model)


def _overdue(queue: Queue, now: float) -> str:
    is_overdue = 0 < queue.deadline_at < now
    return (
        " The first is past its deadline: it expires as soon as a worker looks through the queue." if is_overdue else ""
    )
