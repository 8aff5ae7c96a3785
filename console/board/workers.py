"""Builds one row per worker from its presence. Pure."""

from typing import Final

from console.board.rows import LoadedVersion, WorkerRow
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Worker

_LABELS: Final = {
    "restarting": "restarts its runner",
    "drained": "drained, may be stopped now",
    "unknown": "not known now",
}


def row(worker: Worker, desired: Desired | None, state: str, use: float | None) -> WorkerRow:
    """state: as it reports it, or what is known better. use: the share of time in which it uses the GPU it holds."""
    word, label = words(worker, state, use)
    is_drain_asked = desired is not None and desired.is_draining
    rates = worker.rates
    ran = next(iter(rates), "")
    return WorkerRow(
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        state=state,
        word=word,
        label=label,
        gpu=worker.device.id,
        device=worker.device.name,
        token=worker.token,
        started_at=worker.started_at,
        beat_at=worker.beat_at,
        waiting_since=worker.waiting_since,
        models=tuple(
            LoadedVersion(
                model=m.model,
                version=m.version,
                state=m.state,
                size_bytes=m.size_bytes,
                error=m.error,
                jobs_per_s=rates.get(m.model, 0.0),
                use=m.use,
                is_waited=bool(worker.waiting.get(m.model)),
            )
            for m in worker.models
        ),
        running=len(worker.running),
        done=worker.done,
        failed=worker.failed,
        rss_bytes=worker.rss_bytes + worker.runner_rss_bytes,
        ran=ran,
        jobs_per_s=rates.get(ran, 0.0),
        is_drain_asked=is_drain_asked,
        drained_by=desired.actor if desired is not None and is_drain_asked else "",
        software=worker.software,
        waiting=sum(worker.waiting.values()),
        budget_bytes=worker.budget_bytes,
        pin_bytes=worker.pin_bytes,
        loaded_bytes=sum(m.size_bytes for m in worker.models),
        runner_bytes=worker.runner_rss_bytes,
        restarts=worker.restarts,
        memory_bytes=worker.device.memory_bytes,
        tensorflow=worker.tensorflow,
        driver=worker.device.driver,
        cuda=worker.device.cuda,
    )


def words(worker: Worker, state: str, use: float | None) -> tuple[str, str]:
    """A word of the stylesheet, and what a person reads: its own word, or what a ready one does."""
    if state != "ready":
        return state, _LABELS.get(state, state)
    if not worker.token:
        return ("waiting", "waits for its GPU") if worker.waiting_since else ("idle", "standby")
    if worker.run is not None:
        return worker.run.activity, f"{worker.run.activity} {worker.run.model}:{worker.run.version}"
    if use:
        return "partly", f"in use {use:.0%}"
    return "held", "holds its GPU, idle"
