"""The supervisor's side of a runner that says what no runner of ours would say, and its printing."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from signalbox.program.errors import (
    DeadlineExceeded,
    ModelError,
    ResultTooLarge,
    RunnerCrashed,
    SignalboxError,
    TooLarge,
    Unavailable,
)
from tests.rigs.unstaged import as_it_is
from workers.guard.link import RunnerEnds
from workers.guard.output import BURST_BYTES, LINES, RunnerOutput
from workers.runner import frames
from workers.runner.link import RunnerLink, RunReport
from workers.runner.wire import RunnerLost

LIMIT = 1 << 16
BEAT_S = 0.01
FROZEN_S = 0.5


class Peer:
    """A runner that says what a test wants, and its link."""

    def __init__(self, *, is_slow_to_die: bool = False) -> None:
        self.is_slow_to_die = is_slow_to_die
        self.killed = asyncio.Event()
        self.link = RunnerLink(self._kill, stage=as_it_is, frame_limit_bytes=LIMIT, frozen_s=FROZEN_S)
        self.theirs: socket.socket

    async def start(self) -> None:
        (ours, self.theirs), (beats, self.heart) = socket.socketpair(), socket.socketpair()
        for end in (ours, self.theirs, beats, self.heart):
            end.setblocking(False)
        await self.link.attach(RunnerEnds(ours, beats), 1)
        self.link.admit(7)
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            self.heart.send(b"\x0e")
            await asyncio.sleep(BEAT_S)

    def freeze(self) -> None:
        """It says nothing more."""
        self._beating.cancel()

    def thaw(self) -> None:
        self._beating = asyncio.create_task(self._beat())

    def _kill(self) -> None:
        self.killed.set()
        if not self.is_slow_to_die:
            self.close()
            self.link.detach()  # the guard would report the death

    def close(self) -> None:
        self.freeze()
        self.theirs.close()
        self.heart.close()

    async def say(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.theirs, data)

    def load(self) -> asyncio.Task[frames.VersionLoaded]:
        return asyncio.create_task(self.link.load("m", 1, "/m/1"))

    async def loaded(self, number: int) -> None:
        await self.say(frames.pack(frames.VersionLoaded(number, 1, 0.1, 0, {})))

    def load_ahead(self, timeout_s: float = 60.0) -> asyncio.Task[frames.VersionLoaded]:
        return asyncio.create_task(self.link.load("n", 1, "/n/1", is_beside=True, timeout_s=timeout_s))

    def run(self, timeout_s: float = 60.0) -> asyncio.Task[RunReport]:
        return asyncio.create_task(self.link.run("m", 1, "s", [b"x"], timeout_s=timeout_s))

    async def answer(self, number: int) -> None:
        await self.say(frames.pack(frames.Ran(number, 0.1, [b"r"], {})))


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.start()
    yield peer
    peer.close()
    peer.link.detach()


@pytest.fixture
async def dying() -> AsyncIterator[Peer]:
    """A runner that takes its time to die."""
    peer = Peer(is_slow_to_die=True)
    await peer.start()
    yield peer
    peer.close()
    peer.link.detach()


async def test_a_process_known_to_be_dead_is_not_attached_and_not_waited_for() -> None:
    """A supervisor that was stopped for a while learns of birth and death in one breath."""
    link = RunnerLink(lambda: None, stage=as_it_is, frame_limit_bytes=LIMIT)
    link.detach(77)
    (ours, theirs), (beats, heart) = socket.socketpair(), socket.socketpair()
    with theirs, heart:
        await link.attach(RunnerEnds(ours, beats), 77)
        await asyncio.wait_for(link.died.wait(), 5)
        assert link.pid == 0


async def test_a_process_counts_as_useful_from_its_first_answer_on(peer: Peer) -> None:
    assert not peer.link.is_useful
    run = peer.run()
    await asyncio.get_running_loop().sock_recv(peer.theirs, LIMIT)
    await peer.say(frames.pack(frames.RequestFailed(1, "model_error", "no")))
    with pytest.raises(SignalboxError):
        await run
    assert peer.link.is_useful


async def test_a_version_that_is_not_laid_out_in_time_is_nobodys_fault(peer: Peer) -> None:
    left = asyncio.Event()

    @asynccontextmanager
    async def hangs(_: Path) -> AsyncIterator[Path]:
        try:
            await asyncio.Event().wait()
            yield Path()
        finally:
            left.set()

    peer.link._stage = hangs
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable, match="SIGNALBOX_WORKER_STAGING_DIR"):
            await peer.link.load("n", 1, "/n/1", timeout_s=0.01)
    assert left.is_set()
    assert not peer.killed.is_set(), "the runner has no part in it"


async def test_an_error_that_names_a_path_is_told_without_it_and_logged_nowhere(
    peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    run = peer.run()
    await asyncio.get_running_loop().sock_recv(peer.theirs, LIMIT)
    await peer.say(frames.pack(frames.RequestFailed(1, "model_error", "/srv/models/x; No such file")))
    with pytest.raises(ModelError) as caught:
        await run
    assert caught.value.public_message == "<path>; No such file"
    run = peer.run()
    await asyncio.get_running_loop().sock_recv(peer.theirs, LIMIT)
    said = {0: ("invalid_input", "cannot open /srv/models/y")}
    await peer.say(frames.pack(frames.Ran(2, 0.1, [b""], said)))
    report = await run
    assert report.errors[0].public_message == "cannot open <path>"
    assert not capsys.readouterr().err


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


@pytest.mark.parametrize(
    "said",
    [
        framed(b"\xc1"),
        framed(b""),
        framed(msgspec.msgpack.encode(["Nothing", 1])),
        framed(msgspec.msgpack.encode(["Ran", "one", 0.1, [], {}])),
        (LIMIT + 1).to_bytes(4, "little"),
        b"\xff\xff\xff\xff",
        frames.pack(frames.Ran(99, 0.1, [b""], {})),
        frames.pack(frames.RequestFailed(0, "x", "y")),
        frames.pack(frames.Ran(1, 0.1, [], {})),
        frames.pack(frames.Ran(1, 0.1, [b"", b""], {})),
        frames.pack(frames.VersionLoaded(1, 1, 0.1, 0, {})),
        frames.pack(frames.VersionUnloaded(1)),
    ],
)
async def test_nonsense_is_a_crash_and_ends_the_process(peer: Peer, said: bytes) -> None:
    running = peer.run()
    await asyncio.sleep(0)
    await peer.say(said)
    with pytest.raises(RunnerCrashed):
        await running
    assert peer.killed.is_set()


@pytest.mark.parametrize(("size", "digest"), [(-1, ""), (1, "../x"), (1, "0" * 65)])
async def test_a_load_that_is_answered_with_nonsense_is_a_crash(peer: Peer, size: int, digest: str) -> None:
    loading = peer.load()
    await peer.say(frames.pack(frames.VersionLoaded(1, size, 0.1, 0, {}, digest)))
    with pytest.raises(RunnerCrashed):
        await loading


async def test_an_answer_that_nobody_waits_for_any_more_is_no_nonsense(peer: Peer) -> None:
    first = peer.run()
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = peer.run()
    await asyncio.sleep(0)
    ran = [frames.pack(frames.Ran(number, 0.1, [b"r"], {})) for number in (1, 2)]
    await peer.say(b"".join(ran))
    report = await second
    assert report.frames == [b"r"]
    assert not peer.killed.is_set()


async def test_a_run_takes_its_time_only_from_when_the_runner_comes_to_it(peer: Peer) -> None:
    working, waiting = peer.run(), peer.run(timeout_s=0.1)
    await asyncio.wait([waiting], timeout=0.3)
    assert not peer.killed.is_set(), "what has not begun has not taken too long"
    await peer.answer(1)
    assert (await working).frames == [b"r"]
    with pytest.raises(DeadlineExceeded):
        await waiting
    assert peer.killed.is_set()


async def test_a_load_that_takes_longer_than_its_setting_fails_and_names_it(peer: Peer) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(DeadlineExceeded, match=r"within 0\.05 s; SIGNALBOX_WORKER_LOAD_S allows more"):
            await peer.load_ahead(timeout_s=0.05)
    assert peer.killed.is_set()


async def test_a_run_is_not_charged_for_what_its_supervisor_slept_through(peer: Peer) -> None:
    """Whoever was stopped finds its timer due and the answer unread, and must read first."""
    run = peer.run(timeout_s=0.2)
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.01, time.sleep, 1.0)
    await asyncio.sleep(0.1)
    await peer.answer(1)
    assert (await run).frames == [b"r"]
    assert not peer.killed.is_set()


async def test_a_runner_that_does_not_beat_is_frozen_and_nobodys_fault(peer: Peer) -> None:
    loading, run, next_run = peer.load_ahead(), peer.run(), peer.run()
    await asyncio.get_running_loop().sock_recv(peer.theirs, LIMIT)
    peer.freeze()
    async with asyncio.timeout(60):
        found = await asyncio.gather(loading, run, next_run, return_exceptions=True)
    assert [type(error) for error in found] == [RunnerLost] * 3
    assert peer.killed.is_set()


async def test_a_runner_that_never_beats_is_frozen_from_when_it_is_ready() -> None:
    killed = asyncio.Event()
    link = RunnerLink(killed.set, stage=as_it_is, frame_limit_bytes=LIMIT, frozen_s=FROZEN_S)
    (ours, theirs), (beats, heart) = socket.socketpair(), socket.socketpair()
    ours.setblocking(False)
    beats.setblocking(False)
    with theirs, heart:
        await link.attach(RunnerEnds(ours, beats), 1)
        theirs.sendall(frames.pack(frames.RunnerStarted(1, 0.1)))
        await asyncio.wait_for(killed.wait(), 60)
        link.detach(1)


async def test_a_run_whose_time_ends_while_its_runner_is_frozen_is_not_judged(peer: Peer) -> None:
    run = peer.run(timeout_s=0.05)
    peer.freeze()
    with pytest.raises(RunnerLost):
        await asyncio.wait_for(run, 60)


async def test_the_time_that_a_runner_was_frozen_for_is_not_the_runs(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "BEAT_S", BEAT_S)
    run = peer.run(timeout_s=FROZEN_S / 4)
    await asyncio.sleep(2 * BEAT_S)
    peer.freeze()
    await asyncio.sleep(FROZEN_S / 2)
    peer.thaw()
    await asyncio.sleep(FROZEN_S / 8)
    await peer.answer(1)
    assert (await run).frames == [b"r"]


async def test_a_run_that_takes_long_in_a_runner_that_beats_has_its_time(peer: Peer) -> None:
    run = peer.run(timeout_s=FROZEN_S * 4)
    with pytest.raises(DeadlineExceeded):
        await asyncio.wait_for(run, 60)


async def test_a_runner_is_not_frozen_for_what_its_supervisor_slept_through(peer: Peer) -> None:
    """Both were stopped, as a machine's sleep does it, and the runner's first beat comes after ours."""
    run = peer.run()
    await asyncio.get_running_loop().sock_recv(peer.theirs, LIMIT)
    peer.freeze()
    asyncio.get_running_loop().call_soon(time.sleep, FROZEN_S * 4)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    peer.thaw()
    await peer.answer(1)
    assert (await run).frames == [b"r"]
    assert not peer.killed.is_set()


async def test_the_time_of_a_run_that_nobody_waits_for_any_more_is_its_own(peer: Peer) -> None:
    forsaken, waiting = peer.run(timeout_s=0.3), peer.run(timeout_s=0.05)
    await asyncio.sleep(0)
    forsaken.cancel()
    with pytest.raises(RunnerLost):
        await waiting
    assert peer.killed.is_set()


async def test_a_death_is_the_fault_of_the_request_the_runner_was_at(peer: Peer) -> None:
    first, second, third = peer.run(), peer.run(), peer.run()
    await asyncio.sleep(0)
    await peer.answer(1)
    await first
    peer.theirs.close()
    found = await asyncio.gather(second, third, return_exceptions=True)
    assert [type(error) for error in found] == [RunnerCrashed, RunnerLost]
    with pytest.raises(RunnerLost):
        await peer.run()


async def test_a_run_is_answered_and_its_time_is_taken_beside_a_load_ahead(peer: Peer) -> None:
    loading, run = peer.load_ahead(), peer.run(timeout_s=0.1)
    await asyncio.sleep(0)
    await peer.answer(2)
    assert (await run).frames == [b"r"]
    assert not loading.done()
    late = peer.run(timeout_s=0.1)
    with pytest.raises(DeadlineExceeded):
        await late
    with pytest.raises(RunnerLost):  # it was the run that took too long
        await loading


async def test_a_death_under_a_load_ahead_is_the_load_s_fault(peer: Peer) -> None:
    loading, run = peer.load_ahead(), peer.run()
    await asyncio.sleep(0)
    peer.theirs.close()
    found = await asyncio.gather(loading, run, return_exceptions=True)
    assert [type(error) for error in found] == [RunnerCrashed, RunnerLost]


async def test_a_load_ahead_over_its_time_costs_the_run_beside_it_no_strike(peer: Peer) -> None:
    loading, run = peer.load_ahead(timeout_s=0.05), peer.run()
    found = await asyncio.gather(loading, run, return_exceptions=True)
    assert [type(error) for error in found] == [DeadlineExceeded, RunnerLost]


async def test_a_runner_that_we_end_fails_no_load(peer: Peer) -> None:
    loading, run = peer.load_ahead(), peer.run()
    await asyncio.sleep(0)
    peer.link.kill()
    found = await asyncio.gather(loading, run, return_exceptions=True)
    assert [type(error) for error in found] == [RunnerLost, RunnerCrashed]


async def test_what_a_runner_that_is_dying_has_loaded_is_of_no_use(dying: Peer) -> None:
    loading = dying.load()
    await asyncio.sleep(0)
    await dying.loaded(1)
    await loading
    with pytest.raises(DeadlineExceeded):
        await dying.run(timeout_s=0.05)
    assert not dying.link.died.is_set()
    with pytest.raises(RunnerLost):
        await dying.load()


async def test_what_a_runner_loads_as_its_end_is_ordered_is_of_no_use(dying: Peer) -> None:
    loading = dying.load()
    await asyncio.get_running_loop().sock_recv(dying.theirs, LIMIT)
    dying.link.kill()
    await dying.loaded(1)
    with pytest.raises(RunnerLost):
        await loading


async def test_a_restart_fails_none_of_those_who_still_use_the_runner(dying: Peer) -> None:
    first, second = dying.run(), dying.run()
    await asyncio.get_running_loop().sock_recv(dying.theirs, LIMIT)
    restarting = asyncio.create_task(dying.link.restart())
    async with asyncio.timeout(60):
        found = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(error) for error in found] == [RunnerLost] * 2
    restarting.cancel()


async def test_what_a_runner_answered_before_it_died_counts_though_its_death_is_received_first(peer: Peer) -> None:
    first, second = peer.run(), peer.run()
    await asyncio.sleep(0)
    peer.theirs.sendall(frames.pack(frames.Ran(1, 0.1, [b"r"], {})))
    peer.theirs.close()
    peer.link.detach(1)
    assert (await first).frames == [b"r"]
    with pytest.raises(RunnerCrashed):
        await second


async def test_a_flood_is_the_fault_of_the_run_it_worked_on(peer: Peer) -> None:
    working, waiting = peer.run(), peer.run()
    await asyncio.sleep(0)
    peer.link.flooded()
    with pytest.raises(ResultTooLarge):
        await working
    with pytest.raises(RunnerCrashed):
        await waiting
    assert peer.killed.is_set()


async def test_inputs_beyond_the_limit_are_refused_before_they_are_sent(peer: Peer) -> None:
    with pytest.raises(TooLarge):
        await peer.link.run("m", 1, "s", [bytes(LIMIT)])
    assert not peer.killed.is_set()


async def test_a_runners_words_are_cut_before_they_reach_a_caller(peer: Peer) -> None:
    running = peer.run()
    await asyncio.sleep(0)
    await peer.say(frames.pack(frames.RequestFailed(1, "no_such_code", "x" * (LIMIT - 100))))
    with pytest.raises(ModelError) as raised:
        await running
    assert isinstance(raised.value, SignalboxError)
    assert len(raised.value.public_message) == 2000


# -- printing ---------------------------------------------------------------------------------------


class Printer:
    """A pipe, a clock that stands still, and whether a flood was called."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.floods = 0
        self.flooded = asyncio.Event()
        self.output = RunnerOutput(self._on_flood, lambda: self.now_s)

    def _on_flood(self) -> None:
        self.floods += 1
        self.flooded.set()

    async def write(self, data: bytes) -> None:
        """Whatever the pipe takes at once; it is read meanwhile."""
        await asyncio.to_thread(self._write_all, data)

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.output.fd, data) :]


@pytest.fixture
async def printer() -> AsyncIterator[Printer]:
    printer = Printer()
    yield printer
    printer.output.given()
    printer.output.close()


async def test_the_last_lines_are_kept_and_told_once(printer: Printer) -> None:
    await printer.write(b"".join(b"line %d\n" % n for n in range(50)) + b"no end")
    lines = printer.output.last_lines()
    assert lines[-2:] == ["line 49", "no end"]
    assert len(lines) == LINES
    assert printer.output.last_lines() == []


async def test_a_flood_is_reported_once_for_each_runner(printer: Printer) -> None:
    await printer.write(b"x" * (BURST_BYTES + 1))
    async with asyncio.timeout(30):
        await printer.flooded.wait()
    await printer.write(b"x" * BURST_BYTES)
    assert printer.floods == 1
    assert max(map(len, printer.output.last_lines())) <= 500


async def test_what_fits_over_time_is_no_flood(printer: Printer) -> None:
    for _ in range(40):
        await printer.write(b"x" * (BURST_BYTES // 20))
        printer.now_s += 1.0
    assert printer.floods == 0
