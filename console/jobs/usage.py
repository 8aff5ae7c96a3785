"""Sums over an account's jobs, among a bounded number of the newest."""

from dataclasses import dataclass

from django.db.models import Q, Sum
from django.utils import timezone

from console.jobs import listing, query
from console.jobs.models import Job
from signalbox.wire.messages import State


@dataclass(frozen=True)
class Usage:
    """jobs: how many in each state, and under ``all``, in words. open_bytes: inputs of those that have not ended."""

    jobs: dict[str, str]
    open_bytes: int

    @property
    def states(self) -> list[tuple[str, str]]:
        """``(state, how many)``, without the sum."""
        return [(name, count) for name, count in self.jobs.items() if name != "all"]


def of_account(account_id: str) -> Usage:
    """Of its newest jobs: so many as one page of the list counts."""
    newest = Job.objects.filter(account_id=account_id).order_by("-created_at")[: listing.COUNTED]
    is_open = Q(state__in=(State.QUEUED.value, State.RUNNING.value))
    return Usage(
        jobs=listing.counts(query.parse(f"account:{account_id}", timezone.now())),
        open_bytes=newest.aggregate(held=Sum("size_in", filter=is_open))["held"] or 0,
    )
