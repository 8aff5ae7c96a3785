"""What a host's agent says of a worker that is not ready."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from signalbox.ops.host.keptworkers import KeptWorker
from signalbox.ops.up.child import Child, Spec
from signalbox.wire.workerdocs import Worker
from tests.rigs.presence import presence

HERE = presence("h-1", "GPU-1")


class Process(Child):
    """A child whose process a test makes up."""

    number = 0

    @property
    def pid(self) -> int:
        return self.number


def kept(pid: int, why: str = "") -> KeptWorker:
    child = Process(Spec("h-1", (), {}), Path("/logs"), lambda _: None)
    child.number, child.why = pid, why
    return KeptWorker(child, "GPU-1", lambda *_: True)


@pytest.mark.parametrize(
    ("pid", "why", "told", "fault"),
    [
        (HERE.pid, "", HERE, ""),
        (HERE.pid, "", replace(HERE, state="draining"), ""),
        (0, "", HERE, "Worker h-1 at GPU-1 is started."),
        (HERE.pid, "", None, "Worker h-1 at GPU-1 has not said yet that it is there."),
        (HERE.pid + 1, "", HERE, "Worker h-1 at GPU-1 has not said yet that it is there."),
        (HERE.pid, "", replace(HERE, why="Its runner."), "Worker h-1 at GPU-1: Its runner."),
        (HERE.pid, "", replace(HERE, state="starting"), "Worker h-1 at GPU-1 starts."),
        (0, "it ended", HERE, "Worker h-1 at GPU-1: it ended. Its log is /logs/h-1.log."),
    ],
)
def test_a_worker_that_is_not_ready_is_named_with_the_reason(
    pid: int, why: str, told: Worker | None, fault: str
) -> None:
    assert kept(pid, why).fault(told) == fault


def test_a_worker_that_is_to_end_keeps_nobody_from_being_ready() -> None:
    worker = kept(0)
    worker.is_ending = True
    assert worker.fault(None) == ""


def test_a_worker_that_has_gone_silent_is_told_from_one_that_starts() -> None:
    worker = kept(HERE.pid)
    worker.child.is_ready = True
    assert worker.fault(None) == "Worker h-1 at GPU-1 says no more that it is there."
