"""A browser in Python: the rules of static/js/live.js, and a viewer that a test can wait on."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from console.board.protocol import Frame

TOPICS = ["lanes", "fetches", "queues", "workers", "ticker", "throughput", "health", "alarms"]


class Mirror:
    """The browser's rules, as static/js/live.js has them."""

    def __init__(self) -> None:
        self.epoch = ""
        self.seqs: dict[str, int] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        self.entries: dict[str, list[Any]] = {}
        self.wants: set[str] = set()

    def take(self, text: str) -> None:
        """One frame from the server; afterwards ``wants`` names topics to ask for again."""
        message = json.loads(text)
        kind = message["t"]
        if kind == "tick":
            for topic, seq in message["seqs"].items():
                if topic in self.seqs and (message["epoch"] != self.epoch or self.seqs[topic] != seq):
                    self.wants.add(topic)
            return
        topic = message["topic"]
        if kind == "snap":
            if message["epoch"] == self.epoch and message["seq"] < self.seqs.get(topic, -1):
                return
            if message["epoch"] != self.epoch:
                self.seqs = dict.fromkeys(self.seqs, -1)
            self.epoch = message["epoch"]
            self.seqs[topic] = message["seq"]
            if isinstance(message["state"], list):
                self.entries[topic] = message["state"]
            else:
                self.rows[topic] = message["state"]
            self.wants.discard(topic)
            return
        held = self.seqs.get(topic, -1)
        if message["seq"] <= held:
            return
        if held < 0 or message["seq"] != held + 1:
            self.wants.add(topic)
            return
        self.seqs[topic] = message["seq"]
        if "add" in message:
            self.entries[topic] = [*self.entries[topic], *message["add"]][-50:]
        else:
            self.rows[topic] |= message["set"]
            for key in message["del"]:
                self.rows[topic].pop(key, None)


class Viewer:
    """A subscriber of the hub that mirrors what it is sent; ``until`` waits on frames, not on time."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.mirror = Mirror()
        self.source: dict[str, Any] = {}
        self._received = asyncio.Event()

    def push(self, frame: Frame) -> None:
        """Called by the hub."""
        message = json.loads(frame.text)
        if message["t"] == "tick":
            self.source = message["src"]
        self.mirror.take(frame.text)
        self._received.set()

    async def until(self, is_true: Callable[[], object], *, timeout_s: float = 60.0) -> None:
        """Returns once ``is_true()``, looked at after every frame; a tick comes each second."""
        async with asyncio.timeout(timeout_s):
            while not is_true():
                self._received.clear()
                await self._received.wait()

    def row(self, topic: str, key: str) -> dict[str, Any]:
        """One row as the browser holds it, or an empty one."""
        found: dict[str, Any] = self.mirror.rows.get(topic, {}).get(key, {})
        return found
