"""Replicas of a model, one for each device that it is placed on, as presence says."""

from datetime import UTC, datetime
from typing import NamedTuple

from console.feed.running import running
from console.fleet.hosts import id_of
from signalbox.wire.placement import homes_of
from signalbox.wire.workerdocs import Worker


class Replica(NamedTuple):
    """name: ``$Model-$Index``, the rank in placement from 0. worker: that serves it, or would next. why: not ready."""

    name: str
    host: str
    worker: str
    device: str
    is_ready: bool
    state: str
    why: str
    beat_at: datetime


def of(model: str) -> list[Replica] | None:
    """By rank; None where that is not known now."""
    feed = running.feed
    if feed is None or feed.is_blind:
        return None
    document, workers = feed.tables.model(model), feed.view.queues.workers()
    if document is None:
        return []
    homes = homes_of(document, workers)
    return [_replica(f"{model}-{rank}", model, device, workers) for rank, device in enumerate(homes)]


def warnings(model: str, rows: list[Replica] | None) -> list[str]:
    """What of where it is placed would make it stop with one device, or one host."""
    if not rows:  # that no worker may serve it is said in their place
        return []
    if len(rows) == 1:
        where = f"{rows[0].device} of host {rows[0].host}"
        return [f"{model} is placed on {where} alone: while that is away, its jobs wait. Two replicas go on."]
    hosts = {row.host for row in rows}
    if len(hosts) == 1:
        return [f"All replicas of {model} are on host {rows[0].host}: while that is away, its jobs wait."]
    return []


def _replica(name: str, model: str, device: str, workers: list[Worker]) -> Replica:
    at_device = [worker for worker in workers if worker.device.id == device and worker.state != "draining"]
    serving = max(at_device, key=lambda worker: (bool(worker.token), worker.started_at))
    found = [one for one in serving.models if one.model == model]
    is_ready = bool(serving.token) and any(one.state == "ready" for one in found)
    state = "ready" if is_ready else next((one.state for one in found), "not loaded")
    return Replica(
        name=name,
        host=id_of(serving.host),
        worker=serving.id,
        device=serving.device.name,
        is_ready=is_ready,
        state=state,
        why=next((one.error for one in found if one.error), ""),
        beat_at=datetime.fromtimestamp(serving.beat_at, UTC),
    )
