"""Which workers there are: as this process receives their heartbeats, and as its rows remember them."""

from console.board.rows import WorkerRow
from console.feed.running import running
from console.fleet.models import DesiredState
from console.jobs.models import Job
from signalbox.program.errors import NotFound, Unavailable


def present() -> dict[str, WorkerRow]:
    """Workers by id, those lost a short while ago included; empty while NATS is away."""
    feed = running.feed
    if feed is None:
        return {}
    rows = list(feed.view.topics.topics["workers"].rows.values())  # the feed's thread adds and removes
    return {row.id: row for row in rows if isinstance(row, WorkerRow)}


def here(worker: str) -> WorkerRow:
    """A worker that is here. Raises :class:`NotFound`, or :class:`Unavailable` without NATS."""
    row = present().get(worker)
    if row is None:
        raise unknown("worker", worker)
    return row


def asked_to_drain() -> dict[str, DesiredState]:
    """Every worker that is asked to drain, there or not."""
    return {desired.name: desired for desired in DesiredState.objects.filter(kind=DesiredState.WORKER, is_on=True)}


def must_exist(worker: str) -> None:
    """Returns if there is such a worker, or was one: it is here, ran a job or was asked to drain once.

    Raises :class:`NotFound`, or :class:`Unavailable` where that cannot be told without NATS.
    """
    if not (
        worker in present()
        or DesiredState.objects.filter(kind=DesiredState.WORKER, name=worker).exists()
        or Job.objects.filter(worker=worker).exists()
    ):
        raise unknown("worker", worker)


def must_have_device(gpu: str) -> None:
    """Returns if there is such a GPU, or a job ran on one. Raises as :func:`must_exist`."""
    feed = running.feed
    is_here = feed is not None and gpu in feed.view.topics.topics["lanes"].rows
    if not (is_here or Job.objects.filter(gpu=gpu).exists()):
        raise unknown("GPU", gpu)


def unknown(kind: str, name: str) -> NotFound | Unavailable:
    """The error for what is not there, or where only NATS could tell."""
    if running.is_blind:
        return Unavailable(
            f"NATS is away, so the console cannot say whether there is such a {kind}.", retry_after_s=5.0
        )
    return NotFound(f"There is no {kind} {name[:150]!r}.")
