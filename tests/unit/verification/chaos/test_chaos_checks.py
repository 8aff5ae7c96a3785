"""Every law of the chaos rig finds what breaks it, and finds nothing in a history of a good day."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from verification.chaos.evidence.history import History
from verification.chaos.laws import checks
from verification.chaos.laws.checks import LAWS
from workers.runner.intervals import DeviceInterval

Entry = dict[str, Any]


def answer(job: str = "j", **more: Any) -> Entry:
    base = {"at": 1.0, "event": "answer", "client": "ann", "op": "submit", "status": 202, "job": job, "expect": 3.0}
    return {**base, **more}


def record(state: str, seq: int, last: int, **more: Any) -> Entry:
    base = {
        "at": 2.0,
        "seq": seq,
        "last": last,
        "job": "j",
        "model": "half",
        "state": state,
        "attempt": 1,
        "gpu": "g",
        "token": 5,
        "cancel": False,
        "why": "",
    }
    return {**base, **more}


def lease(state: str, seq: int, last: int, **more: Any) -> Entry:
    base = {
        "at": float(seq),
        "seq": seq,
        "last": last,
        "gpu": "g",
        "state": state,
        "owner": "w1",
        "boot": "b1",
        "token": seq,
        "beats": 0,
        "next": "",
    }
    return {**base, **more}


GOOD = History(
    ledger=[
        {"at": 0.9, "event": "intent", "client": "ann", "op": "submit", "expect": 3.0},
        answer(),
        {
            "at": 3.0,
            "event": "seen",
            "client": "ann",
            "job": "j",
            "status": 200,
            "state": "succeeded",
            "y": 3.0,
            "expect": 3.0,
        },
        {"at": 3.1, "event": "foreign", "client": "bob", "job": "j", "status": 404},
    ],
    records=[record("running", 1, 0), record("succeeded", 2, 1)],
    leases=[
        lease("HELD", 5, 0),
        lease("HELD", 6, 5, token=5, beats=1),
        lease("FREE", 7, 6, token=5, owner="", next="w2", at=20.0),
        lease("HELD", 8, 7, owner="w2", boot="b2", at=21.0),
    ],
    faults=[
        {"at": 4.0, "event": "measured", "kind": "kill", "target": "w1", "what": "takeover", "s": 0.2, "bound_s": 1.0}
    ],
    final=[{"seq": 2, "y": 3.0, **record("succeeded", 2, 1)}, {"end": True, "left": {}}],
    intervals=[
        DeviceInterval(kind="in", gpu="g", pid=12, token=5, t_in=1.0),
        DeviceInterval(kind="use", gpu="g", pid=12, token=5, t_in=2.0, t_out=3.0),
    ],
    logs={"worker.log": '{"event": "lease.acquired"}'},
    secrets={"ann's key": "sbx_secret"},
)


def with_more(**more: list[Any]) -> History:
    """The good day and what is added to it."""
    together: dict[str, Any] = {name: [*getattr(GOOD, name), *entries] for name, entries in more.items()}
    return GOOD._replace(**together)


BROKEN: list[tuple[str, str, History]] = [
    ("lost accepted", "no record at all", with_more(ledger=[answer("lost")])),
    ("lost accepted", "still running", with_more(ledger=[answer("k")], final=[record("running", 9, 8, job="k")])),
    ("lost accepted", "a late answer promises too", with_more(ledger=[answer("k", status=504)])),
    ("jobs left open", "queued", with_more(final=[record("queued", 9, 8, job="k")])),
    ("jobs left open", "still queued", with_more(final=[{"end": True, "left": {"half mid": 1}}])),
    ("double terminal", "two ends", with_more(records=[record("cancelled", 3, 2)])),
    ("double terminal", "revived", with_more(records=[record("running", 3, 2, attempt=2)])),
    (
        "double terminal",
        "two ends told",
        with_more(
            ledger=[{"at": 9.0, "event": "cancelled", "client": "ann", "job": "j", "status": 200, "state": "cancelled"}]
        ),
    ),
    ("double terminal", "another end at the end", GOOD._replace(final=[{**record("cancelled", 2, 1)}])),
    (
        "doubled submits",
        "two jobs of one key",
        with_more(ledger=[answer("k", once="ann-1"), answer("l", once="ann-1")]),
    ),
    ("doubled submits", "one number, two jobs", with_more(final=[{**record("succeeded", 9, 8, job="k"), "y": 3.0}])),
    ("wrong results", "answered", with_more(ledger=[answer("k", status=200, y=4.0)])),
    (
        "wrong results",
        "stored",
        with_more(ledger=[answer("k")], final=[{**record("succeeded", 9, 8, job="k"), "y": 4.0}]),
    ),
    ("wrong answers", "401", with_more(ledger=[answer("", status=401)])),
    ("wrong answers", "500", with_more(ledger=[answer("", status=500)])),
    ("wrong answers", "failed", with_more(final=[record("failed", 9, 8, job="k")])),
    ("dead ends", "no Retry-After", with_more(ledger=[answer("", status=503, again="")])),
    (
        "illegal transitions",
        "queued twice",
        with_more(records=[record("queued", 3, 0, job="k"), record("queued", 4, 3, job="k")]),
    ),
    (
        "illegal transitions",
        "claimed twice",
        with_more(records=[record("running", 3, 0, job="k"), record("running", 4, 3, job="k")]),
    ),
    (
        "illegal transitions",
        "attempt fell",
        with_more(records=[record("running", 3, 0, job="k", attempt=2), record("queued", 4, 3, job="k")]),
    ),
    (
        "stale tokens",
        "fell",
        with_more(records=[record("running", 3, 0, job="k"), record("queued", 4, 3, job="k", token=4)]),
    ),
    (
        "lease chain",
        "token reused",
        with_more(leases=[lease("GONE", 9, 8), lease("HELD", 10, 9, token=8, owner="w1", boot="b3")]),
    ),
    ("lease chain", "fork", with_more(leases=[lease("HELD", 9, 7, token=9, owner="w3", boot="b3")])),
    (
        "overlaps",
        "used at once",
        with_more(intervals=[DeviceInterval(kind="use", gpu="g", pid=99, token=6, t_in=2.5, t_out=4.0)]),
    ),
    ("overlaps", "the witness was taken", with_more(intervals=[replace(GOOD.intervals[0], kind="overlap")])),
    (
        "foreign reads",
        "read",
        with_more(ledger=[{"at": 3.1, "event": "foreign", "client": "bob", "job": "j", "status": 200}]),
    ),
    ("secrets in logs", "key", GOOD._replace(logs={"worker.log": "using sbx_secret"})),
    (
        "bounds",
        "too long",
        with_more(
            faults=[
                {
                    "at": 4.0,
                    "event": "measured",
                    "kind": "kill",
                    "target": "w1",
                    "what": "takeover",
                    "s": 2.0,
                    "bound_s": 1.0,
                }
            ]
        ),
    ),
    (
        "findings",
        "seen by the run itself",
        with_more(faults=[{"at": 4.0, "event": "finding", "text": "a healthy runner was fenced"}]),
    ),
]


def test_a_good_day_breaks_no_law() -> None:
    assert checks.check(GOOD) == []


@pytest.mark.parametrize(("law", "how", "history"), BROKEN, ids=[f"{law}: {how}" for law, how, _ in BROKEN])
def test_a_broken_law_is_found(law: str, how: str, history: History) -> None:
    found = LAWS[law](history)
    assert found, how


def test_every_law_has_a_history_that_breaks_it() -> None:
    assert {law for law, _, _ in BROKEN} == set(LAWS)


def test_an_empty_history_breaks_nothing() -> None:
    assert checks.check(History()) == []


def test_a_law_that_had_nothing_to_look_at_is_named() -> None:
    missing = checks.unjudged(History(secrets={"ann's key": "sbx_secret"}))
    assert missing.keys() == {"lost accepted", "overlaps", "secrets in logs"}


def test_a_kept_run_is_read_with_its_logs_and_what_must_not_stand_in_them(tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "data" / "logs").mkdir(parents=True)
    (tmp_path / "data" / "logs" / "gateway.log").write_text("using sbx_secret")
    assert "secrets in logs" in checks.unjudged(History.of_run(tmp_path))
    (tmp_path / "secrets.json").write_text('{"ann\'s key": "sbx_secret"}')
    found = History.of_run(tmp_path)
    assert "secrets in logs" not in checks.unjudged(found)
    assert {v.law for v in checks.check(found)} == {"secrets in logs"}


def test_the_longest_silence_is_between_promises_or_at_an_end() -> None:
    reported = [answer(str(at), at=at) for at in (1.0, 5.0, 6.0)]
    assert checks.longest_silence(reported, 0.0, 7.0) == 4.0
    assert checks.longest_silence([*reported, answer("", status=503, at=3.0)], 0.0, 7.0) == 4.0
    assert checks.longest_silence(reported, 4.0, 20.0) == 14.0
    assert checks.longest_silence([], 1.0, 3.0) == 2.0


def test_percentiles_are_values_that_were_measured() -> None:
    assert checks.percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert checks.percentile([1.0, 2.0], 0.99) == 2.0
