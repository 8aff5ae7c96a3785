"""Whose ends go out: what subscriptions and webhooks ask for, as a question about one job. Pure."""

from collections.abc import Collection, Iterable

from signalbox.wire.messages import Record
from signalbox.wire.outbound import Subscription, Webhook


class Coverage:
    """What is asked for at one moment. It does not change: another one is made when a document does."""

    def __init__(self, subscriptions: Iterable[Subscription], webhooks: Iterable[Webhook]) -> None:
        asked: list[Subscription | Webhook] = [each for each in subscriptions if each.is_enabled]
        of_jobs: set[str] = set()
        for hook in webhooks:
            if hook.is_enabled and hook.is_for_jobs:
                of_jobs.add(hook.account_id)
            elif hook.is_enabled:
                asked.append(hook)
        self._of_jobs = of_jobs
        self._pairs: Collection[tuple[str, str]] = frozenset((each.account_id, each.model) for each in asked)
        self.is_watched = bool(self._pairs) or bool(of_jobs)
        """Whether anybody is to get anything."""

    def covers(self, account: str, model: str) -> bool:
        """Whether somebody asked for all ends of an account's jobs on a model."""
        pairs = self._pairs
        return (account, model) in pairs or (account, "") in pairs or ("", model) in pairs or ("", "") in pairs

    def takes(self, record: Record) -> bool:
        """Whether the end of this job goes out."""
        if record.webhook and not self._of_jobs.isdisjoint((record.account_id, "")):
            return True
        return self.covers(record.account_id, record.model)
