"""Pages of workers, and what operators ask of workers."""

from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.board.rows import WorkerRow
from console.feed.running import running
from console.fleet import devices, residents, services, software, workers
from console.fleet.models import DesiredState
from console.jobs.models import Job
from console.outbox import services as outbox
from console.pages import flash
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.wire.names import Bucket


@sees(Act.SYSTEM_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Every worker that is here, and those that are asked to drain and are not."""
    here, asked = workers.present(), workers.asked_to_drain()
    rows = [_seen(row, asked.get(name)) for name, row in sorted(here.items(), key=_lost_last)]
    absent = [desired for name, desired in sorted(asked.items()) if name not in here]
    context = {
        "rows": rows,
        "absent": absent,
        "is_blind": running.is_blind,
        "differing": software.differing(here.values()),
    }
    return render(request, "workers/index.html", context)


@sees(Act.SYSTEM_VIEW)
@require_safe
def detail(request: HttpRequest, worker: str) -> HttpResponse:
    """One worker: its presence, its desired state, its latest jobs."""
    workers.must_exist(worker)
    here = workers.present()
    row = here.get(worker)
    lane = devices.lane(row.gpu) if row else None
    desired = DesiredState.objects.filter(kind=DesiredState.WORKER, name=worker).first()
    context = {
        "name": worker,
        "desired": desired,
        "is_blind": running.is_blind,
        "seen": _seen(row, desired) if row else None,
        "residents": residents.of(row) if row else (),
        "software": software.of(row, here.values()) if row else (),
        "use": devices.use(lane) if lane else None,
        "posting": outbox.latest(Bucket.DESIRED, services.desired_key(DesiredState.WORKER, worker)),
        "jobs": Job.objects.filter(worker=worker).order_by("-created_at")[:8],
        "history": AuditEntry.objects.filter(target_kind="worker", target=worker)[:30],
    }
    return render(request, "workers/detail.html", context)


@require_POST
def drain(request: HttpRequest, worker: str) -> HttpResponse:
    """Drain or resume a worker."""
    is_draining = request.POST.get("draining") == "1"
    desired = services.drain(actor_of(request), worker, is_draining=is_draining, reason=request.POST.get("reason", ""))
    done = f"{worker} is asked to {'drain' if is_draining else 'take part again'}"
    flash.say(request, done, services.why_unpublished(desired))
    return redirect("worker", worker=worker)


@require_POST
def release(request: HttpRequest, worker: str) -> HttpResponse:
    """Ask a worker to hand its device over."""
    services.ask_release_by(actor_of(request), worker, reason=request.POST.get("reason", ""))
    flash.done(request, f"{worker} is asked to hand its device over. It ends the batch that runs, then hands over.")
    return redirect("worker", worker=worker)


def _seen(row: WorkerRow, desired: DesiredState | None) -> dict[str, object]:
    """A worker as pages show it."""
    is_asked = desired is not None and desired.is_on
    return {
        "row": row,
        "state": row.word,
        "words": row.label,
        "host": row.host.split("/")[0],
        "desired": desired if is_asked else None,
        "is_drain_pending": is_asked and row.state not in {"draining", "drained", "lost"},
        "beat_at": datetime.fromtimestamp(row.beat_at, UTC),
        "started_at": datetime.fromtimestamp(row.started_at, UTC),
    }


def _lost_last(pair: tuple[str, WorkerRow]) -> tuple[bool, str]:
    name, row = pair
    return row.state == "lost", name
