"""The runner's wire and the checker of its interval log, without processes."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.program.errors import Bug
from signalbox.wire.warmups import WarmUp, WarmUpInput
from verification.chaos.evidence import intervals
from workers.host import identity
from workers.runner import frames
from workers.runner.intervals import DeviceInterval

WARM_UP = WarmUp("sample", {"x": WarmUpInput("float32", (2, 3), is_random=True)}, count=4)
REQUESTS: list[frames.Request] = [
    frames.Load(1, "m", 2, "/p", is_warm=True, warm_ups=(WARM_UP,)),
    frames.RunSignature(2, 9, "m", 2, "serving_default", [b"a", b""], ("y",)),
    frames.Unload(3, "m", 2),
]


@given(st.lists(st.integers(1, 40), max_size=20))
def test_frames_survive_any_cut_of_the_stream(cuts: list[int]) -> None:
    stream = b"".join(frames.pack(request) for request in REQUESTS)
    splitter, got, at = frames.Splitter(1000), [], 0
    for size in [*cuts, len(stream)]:
        got += [frames.request(body) for body in splitter.feed(stream[at : at + size])]
        at += size
    assert got == REQUESTS


def test_frame_above_the_limit_is_refused_by_its_length_alone() -> None:
    with pytest.raises(Bug):
        frames.Splitter(10).feed((11).to_bytes(4, "little"))


@given(st.binary(max_size=60))
def test_rubbish_is_refused_and_never_more(body: bytes) -> None:
    try:
        frames.answer(body)
    except msgspec.MsgspecError:
        return


def line(kind: str, pid: int, token: int, t_in: float, t_out: float = 0.0) -> DeviceInterval:
    return DeviceInterval(kind=kind, gpu="g", pid=pid, token=token, t_in=t_in, t_out=t_out)


GOOD = [
    line("in", 1, 5, 1.0),
    line("use", 1, 5, 1.1, 1.2),
    line("out", 1, 5, 1.0, 2.0),
    line("in", 2, 7, 2.1),
    line("use", 2, 7, 2.2, 3.0),
    line("in", 3, 7, 3.1),  # a new runner under the same lease, after a crash
]


def test_orderly_log_has_no_violations() -> None:
    assert intervals.violations(GOOD) == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (line("overlap", 9, 8, 4.0), "while another was inside"),
        (line("use", 9, 7, 2.5, 2.6), "at once"),
        (line("in", 9, 6, 4.0), "from 7 to 6"),
        (line("in", 9, 5, 1.5), "before 1 had left"),
    ],
)
def test_each_kind_of_violation_is_found(bad: DeviceInterval, said: str) -> None:
    assert any(said in found for found in intervals.violations([*GOOD, bad]))


def test_workers_of_one_lock_directory_are_one_host(tmp_path: Path) -> None:
    one = identity.WorkerIdentity.of_this_process("a", tmp_path / "locks")
    two = identity.WorkerIdentity.of_this_process("b", tmp_path / "locks")
    assert one.host == two.host
    assert one.boot != two.boot
    assert identity.host_of(tmp_path / "others") != one.host
