"""Log lines are JSON, one each, and metrics are served under our names."""

import logging
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import structlog
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from signalbox.jobs import joblog
from signalbox.ops.ports import free_port
from signalbox.program import log, metrics
from signalbox.program.errors import Misconfigured
from signalbox.wire.messages import ErrorInfo, Job, Record, State


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers, root.level = before
    log._render_as_json("INFO")
    structlog.contextvars.clear_contextvars()


def test_a_line_is_json_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("INFO", program="worker")
    log.debug("not.shown")
    log.info("lease.acquired", gpu="GPU-1", token=7)
    try:
        raise ValueError("odd")
    except ValueError:
        log.exception("thing.failed")
    logging.getLogger("library").warning("careful %s", "now")
    lines = [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines()]
    first, second, third = lines
    assert first.pop("at").endswith("+00:00")
    assert first == {"event": "lease.acquired", "gpu": "GPU-1", "token": 7, "level": "info", "program": "worker"}
    assert second["error"] == "ValueError: odd"
    assert "Traceback" in second["traceback"]
    assert (third["event"], third["message"]) == ("library.message", "careful now")


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The time of lines that are counted from now on."""
    made = Clock()
    log._render_as_json("DEBUG", log.EqualLines(made))
    return made


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[tuple[Any, ...]]:
    reported = [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines()]
    return [(line["event"], line.get("why"), line.get("repeated")) for line in reported]


def test_equal_warnings_are_counted_and_the_count_is_said(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    for _ in range(1000):
        log.warning("nats.away", why="no answer")
    log.error("nats.away", why="other")
    assert lines_of(capsys) == [("nats.away", "no answer", None), ("nats.away", "other", None)]
    clock.now = log.WINDOW_S
    log.warning("nats.away", why="no answer")
    assert lines_of(capsys) == [("nats.away", "no answer", 999)]
    log.warning("nats.away", why="no answer")
    clock.now = 2 * log.WINDOW_S
    log.warning("thing.else")
    assert lines_of(capsys) == [("nats.away", "no answer", 1), ("thing.else", None, None)]


def test_lines_of_two_jobs_changes_of_state_and_lines_for_debugging_are_never_counted(
    capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    for job in ("a", "b"):
        log.warning("job.odd", why=job)
    for _ in range(2):
        log.info("state.changed")
        log.debug("detail")
    reported = [event for event, *_ in lines_of(capsys)]
    assert reported == ["job.odd", "job.odd", "state.changed", "detail", "state.changed", "detail"]


def test_of_many_different_lines_none_is_hidden_and_no_count_is_lost(
    capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    for number in range(1000):
        for _ in range(2):
            log.error("failed", why=number)
    log._render_as_json("INFO")
    reported = lines_of(capsys)
    assert [why for _, why, repeated in reported if repeated is None] == list(range(1000))
    assert {repeated for _, _, repeated in reported} <= {None, 1}
    assert len(reported) > 1000 + 700  # the last are still remembered


def test_a_program_says_its_counts_when_it_ends() -> None:
    code = (
        "from signalbox.program import log; log.configure(program='it')\n"
        "for _ in range(3):\n"
        "    try: raise ValueError('odd')\n"
        "    except ValueError: log.exception('it.failed')\n"
        "    import logging; logging.getLogger('library').critical('no')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    reported = [msgspec.json.decode(line) for line in done.stderr.splitlines()]
    assert [(one["event"], one.get("repeated")) for one in reported] == [
        ("it.failed", None),
        ("library.message", None),
        ("it.failed", 2),
        ("library.message", 2),
    ]


JOB = Job(
    id="01",
    model="half",
    version=2,
    signature="s",
    account_id="secret-owner",
    created_at=10.0,
    deadline_at=99.0,
    trace="00-ab",
)
QUICK = Record(
    id="01",
    model="half",
    version=2,
    signature="s",
    account_id="secret-owner",
    created_at=10.0,
    deadline_at=99.0,
    state=State.SUCCEEDED,
    worker="w1",
    gpu="GPU-1",
    token=7,
    attempt=1,
    batch=3,
    trace="00-ab",
    phases={"done": 1030.0, "pulled": 1000.0, "claimed": 1010.0},
)
WHY = ErrorInfo(code="model_error", message="input [4711.0] is odd")


def reported(capsys: pytest.CaptureFixture[str], record: Record, **facts: Any) -> list[dict[str, Any]]:
    joblog.ended(record, **facts)
    return [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize(
    ("record", "facts"),
    [
        (replace(QUICK, state=State.FAILED, error=WHY), {}),
        (replace(QUICK, state=State.EXPIRED), {}),
        (replace(QUICK, attempt=2), {}),
        (QUICK, {"slow_s": 0.029}),
    ],
)
def test_a_job_that_failed_was_retried_or_was_slow_is_told_at_info(
    capsys: pytest.CaptureFixture[str], record: Record, facts: dict[str, Any]
) -> None:
    log.configure("INFO", program="worker")
    (line,) = reported(capsys, record, **facts)
    assert (line["event"], line["level"], line["state"]) == ("job.ended", "info", record.state)
    names = ("job", "model", "version", "worker", "gpu", "token", "attempt", "batch", "trace")
    assert [line[name] for name in names] == ["01", "half", 2, "w1", "GPU-1", 7, record.attempt, 3, "00-ab"]
    assert line["code"] == (record.error.code if record.error else "")
    assert list(line["phases"])[-2:] == ["claimed", "done"]
    assert "4711" not in str(line)
    assert "secret-owner" not in str(line)


def test_a_job_that_is_well_costs_no_line_at_info_and_one_a_step_at_debug(capsys: pytest.CaptureFixture[str]) -> None:
    for level, lines in (("INFO", 0), ("DEBUG", 5)):
        log.configure(level, program="worker")
        joblog.accepted(JOB, 5)
        joblog.steps("job.started", [JOB, JOB])
        joblog.claimed(QUICK)
        events = reported(capsys, QUICK, slow_s=0.031)
        assert len(events) == lines
        assert {event["level"] for event in events} <= {"debug"}


def test_a_log_that_nobody_reads_any_more_breaks_nothing() -> None:
    program = (
        "from signalbox.program import log; log.configure(program='p')\n"
        "for number in range(3): log.info('some.event', number=number)\n"
        "print('done')"
    )
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=write, timeout=60, check=False
    )
    os.close(write)
    assert (done.returncode, done.stdout) == (0, b"done\n")


def test_lines_of_programs_sort_by_time(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("INFO", program="worker")
    for event in ("b", "a", "c"):
        log.info(event)
    lines = capsys.readouterr().err.splitlines()
    assert [msgspec.json.decode(line)["event"] for line in sorted(lines)] == ["b", "a", "c"]


def test_metrics_are_served_and_a_taken_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        metrics, "REGISTRY", CollectorRegistry()
    )  # else docs/metrics.md would have to name what is made
    accepted = metrics.counter("test_accepted", "For a test.", "model")
    accepted.labels("m").inc(3)
    assert metrics.serve(0) == 0
    port = metrics.serve(free_port())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        assert 'signalbox_test_accepted_total{model="m"} 3.0' in page.read().decode()
    with pytest.raises(Misconfigured, match=f"Metrics port {port}"):
        metrics.serve(port)


def test_a_failure_s_local_variables_are_never_shown_not_even_before_the_log_is_set_up() -> None:
    import subprocess
    import sys

    program = (
        "from signalbox.program import log\n"
        "def act():\n    precious = 'sesame'[::-1]\n    raise ValueError('odd')\n"
        "try:\n    act()\nexcept ValueError:\n    log.exception('thing.failed')\n"
        "log.configure('INFO', program='x')\n"
        "try:\n    act()\nexcept ValueError:\n    log.exception('thing.failed')\n"
        "import threading\nthread = threading.Thread(target=act)\nthread.start()\nthread.join()\nact()\n"
    )
    reported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    events = [msgspec.json.decode(line)["event"] for line in reported.stderr.splitlines()]
    assert events == ["thing.failed", "thing.failed", "thread.crashed", "program.crashed"]
    assert "emases" not in reported.stderr
    assert reported.stdout == ""
