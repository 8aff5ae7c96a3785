"""Sends what the live view makes to the connections of this process. No channel layer (ADR 0070)."""

from collections.abc import Mapping
from typing import Any, Protocol

from console.board.protocol import RING_S, Frame
from console.board.view import TOPICS, LiveView
from console.feed.watched import WatchedJobs, job_of


class Subscriber(Protocol):
    """A connection. ``push`` never blocks and never raises."""

    topics: set[str]

    def push(self, frame: Frame) -> None:
        """Queue one frame for this connection."""


class Hub:
    """The subscribers of each topic."""

    def __init__(self, view: LiveView, jobs: WatchedJobs) -> None:
        self.view = view
        self._jobs = jobs
        self._subscribers: set[Subscriber] = set()
        self._watched_at = float("-inf")

    def __len__(self) -> int:
        return len(self._subscribers)

    def subscribe(self, subscriber: Subscriber, topics: list[str], resume: Mapping[str, Any], now: float) -> None:
        """Registers and sends the state of ``topics``, in one step with nothing between: no delta is lost."""
        self._subscribers.add(subscriber)
        epoch = str(resume.get("epoch", ""))
        for name in topics:
            subscriber.topics.add(name)
            self._jobs.open(name)
            held = resume.get(name)
            seq = held if isinstance(held, int) else None
            for frame in self.view.topics.resume(name, epoch, seq, now):
                subscriber.push(frame)

    def leave(self, subscriber: Subscriber) -> None:
        """Forgets a connection, and the jobs that only it looked at. Idempotent."""
        self._subscribers.discard(subscriber)
        for name in filter(job_of, subscriber.topics):
            if not any(name in other.topics for other in self._subscribers):
                self._jobs.close(name)

    def flush(self, now: float) -> None:
        """One delta per changed topic to everybody who listens to it, and to who may come back for it."""
        if self._subscribers:
            self._watched_at = now
        for frame in self.view.flush(now, is_watched=now <= self._watched_at + RING_S):
            for subscriber in self._subscribers:
                if frame.topic in subscriber.topics:
                    subscriber.push(frame)

    def tick(self, now: float, source: Mapping[str, Any]) -> None:
        """The heartbeat of the protocol, to everybody: one frame for all but those who look at a job."""
        shared = self.view.topics.tick(now, source, TOPICS)
        for subscriber in self._subscribers:
            jobs = tuple(filter(job_of, subscriber.topics))
            subscriber.push(self.view.topics.tick(now, source, (*TOPICS, *jobs)) if jobs else shared)
