"""Notes for operators what NATS has lost, and how many jobs that affected.

Neither a stream that is gone nor a block that ends too early is told by nats-server; both show when the tables
are further than the stream, or of another stream. How many jobs were lost with it is what is counted later: those
that have ended because neither their message nor their record was there any more.
"""

from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from console.jobs.models import HAS_ERROR, Job
from console.projector.models import Damage
from signalbox.program import log
from signalbox.program.errors import InputLost
from signalbox.wire.assets import SECOND, STATE

SHOWN: Final = timedelta(days=1)
_RESULTS_KEPT: Final = timedelta(seconds=STATE["max_age"] / SECOND)
_ENDED: Final = ("succeeded", "failed", "cancelled", "expired")


def note(stream: str, what: str, *, results: int = 0) -> None:
    """Write down what was found lost of a stream; what is noted already keeps its time."""
    found = Damage.objects.filter(pk=stream).first()
    if found is not None and found.what == what:
        return
    Damage.objects.update_or_create(
        stream=stream, defaults={"at": timezone.now(), "what": what[:200], "results": results}
    )
    log.error("nats.damaged", stream=stream, what=what, results=results)


def ended_beyond(revision: int) -> int:
    """How many jobs ended with a record after this revision, and not so long ago that it may have aged out."""
    since = timezone.now() - _RESULTS_KEPT
    return Job.objects.filter(state__in=_ENDED, finished_at__gte=since, revision__gt=revision).count()


def latest() -> datetime | None:
    """When damage was last found."""
    return Damage.objects.order_by("-at").values_list("at", flat=True).first()


def standing() -> list[Damage]:
    """What was found within a day, oldest first."""
    return list(Damage.objects.filter(at__gte=timezone.now() - SHOWN).order_by("at"))


def lost_jobs() -> int:
    """How many accepted jobs ended within the last day because NATS had lost them or their inputs."""
    since = timezone.now() - SHOWN
    return Job.objects.filter(HAS_ERROR, error_code=InputLost.code, finished_at__gte=since).count()
