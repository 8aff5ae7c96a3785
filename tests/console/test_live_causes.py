"""Alarms of one cause are one line: with how many, which, where to go and what to do."""

import pytest

from console.board import alarms
from console.board.causes import CAUSES, NAMED, grouped, hint
from console.board.queues import Gauge
from console.board.rows import Alarm, Queue
from console.board.workers import row as row_of
from signalbox.wire.modeldocs import Model
from signalbox.wire.workerdocs import Residency
from tests.console.test_live_view import GPU, T0, held, row, view, worker


def test_models_without_an_able_worker_are_one_line_and_one_alone_says_its_own() -> None:
    waiting = Queue(waiting=2, replicas=1)
    one = alarms.find([], {"a": waiting}, [], T0)
    assert list(one) == ["unserved:a"]
    assert (one["unserved:a"].href, one["unserved:a"].hint) == ("/models/a", CAUSES["unserved"].hint)
    three = alarms.find([], {"c": waiting, "a": waiting, "b": waiting}, [], T0)
    assert list(three) == ["unserved"]
    assert three["unserved"].text == "3 models have jobs that wait, and no able worker: a, b, c."
    assert (three["unserved"].level, three["unserved"].href) == ("error", "/workers")
    many = alarms.find([], {f"m{n}": waiting for n in range(9)}, [], T0)
    assert many["unserved"].text.endswith("m0, m1, m2, m3, m4 and 4 more.")
    assert NAMED == 5


def test_causes_do_not_mix_and_what_has_no_cause_stays() -> None:
    found = {
        "drained": Alarm("error", "Every worker drains."),
        "old:a": Alarm("warning", "a", what="a"),
        "old:b": Alarm("warning", "b", what="b"),
        "paused:c": Alarm("warning", "c", what="c"),
    }
    assert set(grouped(found)) == {"drained", "old", "paused:c"}
    assert grouped(found)["old"].level == "warning"
    assert grouped({}) == {}


def test_versions_that_do_not_load_are_named_with_their_workers() -> None:
    broken = Residency(model="digits", version=1, state="failed", error="no such file")
    rows = [row_of(worker(name, models=(broken,)), None, "ready", None) for name in ("w1", "w2")]
    (alarm,) = alarms.find([], {}, rows, T0).values()
    assert alarm.text == "2 versions do not load: digits:1 on w1, digits:1 on w2."
    assert alarm.href == "/models?state=failed"


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_leads_somewhere_and_names_what_it_counts(cause: str) -> None:
    assert CAUSES[cause].href.startswith("/")
    assert "{count}" in CAUSES[cause].text
    assert "{names}" in CAUSES[cause].text
    assert hint(f"{cause}:x") == CAUSES[cause].hint


def test_on_the_board_a_line_grows_and_shrinks_with_its_things() -> None:
    board = view()
    for name in ("a", "b"):
        board.model(name, Model(name=name), T0)
        board.queues.gauge(name, Gauge(3, T0), T0)
    board.age(T0 + 1, is_blind=False)
    assert row(board, "alarms", "unserved").text.startswith("2 models")
    assert row(board, "alarms", "unserved:a") is None
    board.queues.gauge("b", Gauge(0, None), T0 + 2)
    board.age(T0 + 2, is_blind=False)
    assert row(board, "alarms", "unserved") is None
    assert "no worker runs" in row(board, "alarms", "unserved:a").text


def test_an_alarm_of_a_device_leads_to_its_page() -> None:
    board = view()
    held(board, "a", 1, T0)
    board.age(T0 + 21, is_blind=False)
    assert row(board, "alarms", f"expired:{GPU}").href == f"/workers/-/devices/{GPU}"
