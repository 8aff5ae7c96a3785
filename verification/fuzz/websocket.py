"""Fuzzes the live websocket with frames of a browser, one a line, from several tabs, between changes of the board.

A frame is either no subscription or one within its bounds; a subscription gets frames of the topics it asked for and
of no others, each of them JSON, in an order that a viewer can follow; and no frame of a viewer changes what the board
shows.
"""

import json
import os
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

import django

django.setup()

from console.board.protocol import BACKLOG, Backlog, Frame  # noqa: E402  Django first
from console.board.view import LiveView  # noqa: E402  Django first
from console.feed.hub import Hub  # noqa: E402  Django first
from console.feed.watched import WatchedJobs  # noqa: E402  Django first
from console.live.consumer import ACTS, MESSAGE_LIMIT, Subscribe, read  # noqa: E402  Django first
from signalbox.wire.steering import Desired  # noqa: E402  Django first

SEEDS: Final = Path(__file__).parent / "corpus" / "websocket"
SHARE: Final = 15_000
TOKENS: Final = tuple(
    word.encode()
    for word in (
        '{"t":"sub"',
        '"topics":',
        '"resume":',
        '"epoch":"e"',
        '["lanes"]',
        "lanes",
        "queues",
        "workers",
        "ticker",
        "throughput",
        "health",
        "alarms",
        '"lanes":0',
        '"lanes":1',
        '"lanes":-1',
        '"lanes":99999999999999999999',
        '"lanes":"1"',
        '"lanes":true',
        '"lanes":null',
        '"t":"tick"',
        "\n",
        "\n+",
        "\n-",
        "\\u0000",
        "\\ud800",
        "}",
        "[",
    )
)
_STEPS: Final = 40


class Tab:
    """A connection as the consumer keeps one, without the socket."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.asked: set[str] = set()
        self.backlog = Backlog()
        self.held: dict[str, int] = {}

    def push(self, frame: Frame) -> None:
        """Called by the hub."""
        assert frame.topic in self.asked or not frame.topic, "a frame of a topic that was not asked for"
        self.backlog.push(frame)
        assert len(self.backlog) <= BACKLOG + len(ACTS), "a slow reader costs memory"

    def read_all(self, hub: Hub) -> None:
        """Takes what is queued, as the browser does."""
        while (item := self.backlog.pop()) is not None:
            frame = hub.view.topics.snapshot(item, 1.0) if isinstance(item, str) else item
            message = json.loads(frame.text)
            if message["t"] == "delta":
                seq, held = message["seq"], self.held.get(message["topic"])
                assert held is None or seq <= held + 1, "a delta is missing"
            if message["t"] in {"delta", "snap"}:
                self.held[message["topic"]] = message["seq"]


def one(data: bytes) -> Hashable:
    """Plays one conversation. Returns what became of its frames, in short."""
    view = LiveView("e", 0.0)
    hub = Hub(view, WatchedJobs(view, lambda _: None, lambda: 0.0))
    tabs = [Tab(), Tab()]
    outcomes: set[str] = set()
    for step, line in enumerate(data.split(b"\n")[:_STEPS]):
        if line[:1] == b"+":
            _change(view, hub, step)
            continue
        tab = tabs[step % 2]
        before = _shown(view)
        outcomes.add(_say(hub, tab, line))
        assert _shown(view) == before, "a viewer changed the board"
        tab.read_all(hub)
    for tab in tabs:
        tab.read_all(hub)
        hub.leave(tab)
        hub.leave(tab)
    assert len(hub) == 0
    return frozenset(outcomes)


def _say(hub: Hub, tab: Tab, line: bytes) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return "not text"  # the server closes the connection before it reaches us
    asked = read(text)
    if asked is None:
        return "refused"
    _is_within_bounds(asked, text)
    if not asked.topics or not all(topic in ACTS for topic in asked.topics):
        return "not allowed"
    tab.asked |= set(asked.topics)
    tab.held = {t: s for t, s in tab.held.items() if t not in asked.topics}
    hub.subscribe(tab, asked.topics, asked.resume, 1.0)
    assert tab.topics == tab.asked
    return "resumed" if asked.resume else "subscribed"


def _is_within_bounds(asked: Subscribe, text: str) -> None:
    assert len(text) <= MESSAGE_LIMIT
    assert len(asked.topics) <= 16
    assert all(len(topic) <= 32 for topic in asked.topics)
    assert len(asked.resume) <= 32


def _change(view: LiveView, hub: Hub, step: int) -> None:
    view.queues.desired(f"m{step % 3}", Desired(is_paused=bool(step % 2)), float(step))
    view.topics.topics["health"].set("x", _row(step))
    hub.flush(float(step))


def _row(step: int) -> Any:
    from console.board.rows import Figure

    return Figure("x", "ok", str(step))


def _shown(view: LiveView) -> list[tuple[int, dict[str, Any], list[Any]]]:
    return [(t.seq, dict(t.rows), list(t.entries)) for t in view.topics.topics.values()]
