"""Log lines are JSON, one each, and metrics are served under our names."""

import logging
import urllib.request
from collections.abc import Iterator

import msgspec
import pytest
import structlog

from signalbox import log, metrics
from signalbox.errors import Misconfigured
from signalbox.ports import free_port


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
    assert first == {
        "event": "lease.acquired", "gpu": "GPU-1", "token": 7, "level": "info", "program": "worker",
    }  # fmt: skip
    assert second["error"] == "ValueError: odd"
    assert "Traceback" in second["trace"]
    assert (third["event"], third["message"]) == ("library.message", "careful now")


def test_metrics_are_served_and_a_taken_port_is_named() -> None:
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
        "from signalbox import log\n"
        "def act():\n    precious = 'sesame'[::-1]\n    raise ValueError('odd')\n"
        "try:\n    act()\nexcept ValueError:\n    log.exception('thing.failed')\n"
        "log.configure('INFO', program='x')\n"
        "try:\n    act()\nexcept ValueError:\n    log.exception('thing.failed')\n"
        "import threading\nthread = threading.Thread(target=act)\nthread.start()\nthread.join()\nact()\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    events = [msgspec.json.decode(line)["event"] for line in told.stderr.splitlines()]
    assert events == ["thing.failed", "thing.failed", "thread.crashed", "program.crashed"]
    assert "emases" not in told.stderr
    assert told.stdout == ""
