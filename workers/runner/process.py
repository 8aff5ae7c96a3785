"""The runner: the process that uses the device. Started by the guard, fed by the supervisor.

It has one main thread on purpose: the runner is inside the device only between the guard's ``enter`` and its own
``left``, and while TensorFlow works it answers no request. Only a load that runs go on beside and a trial of joined
requests have a thread to themselves; the process sends ``left`` when those have ended too.
Another thread only watches for the end of supervisor and guard, so that a runner never outlives both of them, and one
sends heartbeats, whatever the others do (:func:`beat`). The process is confined (:mod:`workers.sandbox.confine`) before
anything of TensorFlow, and long before any model, is in its memory.
"""

import argparse
import gc
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

from signalbox.program.errors import LeaseLost, NotFound, ResultTooLarge, RunnerCrashed, SignalboxError
from signalbox.wire.warmups import WarmUp
from workers.runner import frames
from workers.runner.intervals import Intervals, now
from workers.sandbox import privileges
from workers.sandbox.confine import confine
from workers.sandbox.confinement import Confinement, Sandbox

REFUSED: Final = 78
"""Exit status of a runner whose sandbox does not hold: it has served no job."""
_READ_BYTES: Final = 1 << 18
_ORDER_BYTES: Final = 256


class Engine(Protocol):
    """What computes; :class:`workers.runner.engine.TensorFlowEngine` says what each promises."""

    def load(
        self, model: str, version: int, path: str, *, is_warm: bool, digest: str, warm_ups: Sequence[WarmUp]
    ) -> frames.LoadReport:
        """Load a version, or raise one of our errors."""

    def unload(self, model: str, version: int) -> None:
        """Forget a version."""

    def run(
        self, model: str, version: int, signature: str, jobs: Sequence[bytes], outputs: tuple[str, ...]
    ) -> tuple[list[bytes], dict[int, tuple[str, str]]]:
        """Frames and errors by index of job."""

    def without_tensor_float_32(self) -> AbstractContextManager[None]:
        """Runs inside the context multiply whole floats."""


MakeEngine = Callable[[str, int, int], Engine]


class Runner:
    """Serves one supervisor's socket and one guard's."""

    def __init__(
        self, engine: Engine, data: socket.socket, guard: socket.socket, intervals: Intervals, frame_limit_bytes: int
    ) -> None:
        self._engine, self._data, self._guard, self._intervals = engine, data, guard, intervals
        self._splitter = frames.Splitter(frame_limit_bytes)
        self._limit = frame_limit_bytes
        self._token = 0
        self._beside: threading.Thread | None = None
        self._loaded: dict[tuple[str, int], frames.LoadReport] = {}
        self._one_answer = threading.Lock()

    def serve(self, started: float, confinement: Confinement) -> None:
        """Until either socket ends."""
        seconds = round(time.monotonic() - started, 3)
        self._send(frames.RunnerStarted(os.getpid(), seconds, confinement))
        poll = select.poll()
        data, guard = self._data.fileno(), self._guard.fileno()
        poll.register(guard, select.POLLIN)
        poll.register(data, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if guard in ready:  # first: who is told to leave begins nothing new
                self._on_guard()
            elif data in ready:
                received = self._data.recv(_READ_BYTES)
                if not received:
                    return
                for body in self._splitter.feed(received):
                    self._take(frames.request(body))

    def _take(self, request: frames.Request) -> None:
        if isinstance(request, frames.TryJoining) or (isinstance(request, frames.Load) and request.is_beside):
            self._finish_beside()
            self._beside = threading.Thread(target=self._answer_beside, args=[request], daemon=True)
            self._beside.start()
        else:
            self._send(self._answer(request))

    def _answer_beside(self, request: frames.Request) -> None:
        """Run in a thread of its own. An unforeseen error ends the process, as it does in the main thread."""
        try:
            self._send(self._answer(request))
        except BaseException:  # noqa: BLE001  the edge of a thread
            traceback.print_exc()
            os._exit(1)

    def _finish_beside(self) -> None:
        if self._beside is not None:
            self._beside.join()
            self._beside = None

    def _on_guard(self) -> None:
        order = self._guard.recv(_ORDER_BYTES).decode()
        verb, _, number = order.partition(" ")
        if verb == "enter":
            if not self._token:
                self._token = int(number)
                self._intervals.enter(self._token)
            self._guard.send(f"in {self._token}".encode())
        elif verb == "leave":
            self._finish_beside()
            if self._token:
                self._token = 0
                self._intervals.leave()
            self._guard.send(b"left")
        else:
            sys.exit(0)

    def _answer(self, request: frames.Request) -> frames.Answer:
        if not self._token:
            return frames.RequestFailed(request.id, LeaseLost.code, "The runner is outside the device.")
        t_in = now()
        try:
            return self._perform(request)
        except RunnerCrashed:
            os._exit(70)  # the device's context is beyond repair; a new process gets a new one
        except SignalboxError as error:
            return frames.RequestFailed(request.id, error.code, error.public_message)
        finally:
            self._intervals.use(t_in)

    def _perform(self, request: frames.Request) -> frames.Answer:
        start = time.perf_counter()
        if isinstance(request, frames.RunSignature):
            if request.token != self._token:
                raise LeaseLost("The token is not the one the runner was let in with.")
            results, failed = self._engine.run(
                request.model, request.version, request.signature, request.inputs, request.outputs
            )
            return frames.Ran(request.id, time.perf_counter() - start, results, failed)
        if isinstance(request, frames.Load):
            loaded = self._engine.load(
                request.model,
                request.version,
                request.path,
                is_warm=request.is_warm,
                digest=request.digest,
                warm_ups=request.warm_ups,
            )
            self._loaded[request.model, request.version] = loaded
            seconds = time.perf_counter() - start
            return frames.VersionLoaded(
                request.id,
                loaded.size_bytes,
                seconds,
                loaded.warmed,
                loaded.signatures,
                loaded.digest,
                loaded.verify_s,
                loaded.warm_s,
            )
        if isinstance(request, frames.Unload):
            self._loaded.pop((request.model, request.version), None)
            self._engine.unload(request.model, request.version)
            return frames.VersionUnloaded(request.id)
        if isinstance(request, frames.TryJoining):
            return self._try_joining(request)
        if isinstance(request, frames.RunShadow):
            return self._run_shadow(request, start)
        raise NotFound(type(request).__name__)

    def _try_joining(self, request: frames.TryJoining) -> frames.JoiningTried:
        """Run in a thread of its own: each of its runs waits for its turn with the engine."""
        from workers.runner import joining  # numpy, which the engine has imported by now

        loaded = self._loaded.get((request.model, request.version))
        if loaded is None:
            raise NotFound(f"{request.model} version {request.version} is not loaded.")

        def run(signature: str, frame: bytes) -> bytes:
            return self._engine.run(request.model, request.version, signature, [frame], ())[0][0]

        with self._engine.without_tensor_float_32():
            found = joining.tried(loaded.signatures, loaded.samples, run, seconds=request.seconds)
        return frames.JoiningTried(request.id, *found)

    def _run_shadow(self, request: frames.RunShadow, start: float) -> frames.ShadowRan:
        from workers.runner import shadow  # as above

        if request.token != self._token:
            raise LeaseLost("The token is not the one the runner was let in with.")
        results, failed = self._engine.run(
            request.model, request.version, request.signature, request.inputs, request.outputs
        )
        seconds = time.perf_counter() - start
        found = shadow.compare(results, request.expected, failed, tolerance=request.tolerance)
        return frames.ShadowRan(request.id, seconds, *found)

    def _send(self, answer: frames.Answer) -> None:
        data = frames.pack(answer)
        if len(data) - frames.LENGTH_BYTES > self._limit:
            # The supervisor would take a frame of this size for nonsense, and this process for crashed.
            why = f"The results take {len(data)} bytes; {self._limit} are taken."
            data = frames.pack(frames.RequestFailed(getattr(answer, "id", 0), ResultTooLarge.code, why))
        with self._one_answer:
            self._data.sendall(data)


def _confined(sandbox: Sandbox, kind: str) -> Confinement:
    """Confine this process, or end it. Its parent may die meanwhile: a change of user disarms the signal."""
    parent = os.getppid()
    privileges.die_with_parent(is_dumpable=False)
    try:
        confinement = confine(sandbox, kind)
    except (SignalboxError, OSError) as error:
        sys.stderr.write(f"runner.refused: {error}\n")
        sys.stderr.flush()
        os._exit(REFUSED)
    if os.getppid() != parent:
        os._exit(1)
    return confinement


def _watch_for_end(*fds: int) -> None:
    """End the process as soon as one of the other ends is closed, whatever the main thread does."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLRDHUP)
    poll.poll()
    os._exit(1)


def beat(fd: int) -> None:
    """Write a byte to ``fd`` every :data:`workers.runner.frames.BEAT_S` from now on, while the process gets any time.

    A kernel timer wakes a thread that takes no other signal, and the interpreter's handler writes in C. So a held
    interpreter lock does not delay it, and no call of TensorFlow is interrupted by its signal. Called in the main
    thread, before there are others: they inherit its mask.
    """
    os.set_blocking(fd, False)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    threading.Thread(target=_take_alarms, daemon=True).start()
    signal.setitimer(signal.ITIMER_REAL, frames.BEAT_S, frames.BEAT_S)


def _take_alarms() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    while True:
        signal.pause()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep TensorFlow's greetings, written before its log level is read, out of the log."""
    sys.stderr.flush()
    saved, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def main(make_engine: MakeEngine | None = None) -> None:
    """``python -m workers.runner.process ... DATA_FD BEATS_FD GUARD_FD LOCK_FD``; only the guard starts it."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m workers.runner.process", description=__doc__)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--kind", choices=("cpu", "nvidia"), required=True)
    parser.add_argument("--intra", type=int, default=0)
    parser.add_argument("--inter", type=int, default=0)
    parser.add_argument("--frame-limit", type=int, default=1 << 30)
    parser.add_argument("--interval-log", default="")
    parser.add_argument("--sandbox", type=Sandbox.of_argument, default=Sandbox())
    parser.add_argument("fds", type=int, nargs=4)
    args = parser.parse_args()
    for fd in args.fds:  # the last is the flock: kept open, and never given to a child of ours
        os.set_inheritable(fd, False)
    data_fd, beats_fd, guard_fd, _ = args.fds
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's to handle
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    data, guard = socket.socket(fileno=data_fd), socket.socket(fileno=guard_fd)
    intervals = Intervals(args.interval_log, args.gpu)  # its files lie outside the sandbox
    confinement = _confined(args.sandbox, args.kind)
    beat(beats_fd)
    threading.Thread(target=_watch_for_end, args=(data_fd, guard_fd), daemon=True).start()
    engine = (make_engine or _tensorflow)(args.kind, args.intra, args.inter)
    Runner(engine, data, guard, intervals, args.frame_limit).serve(started, confinement)


def _tensorflow(kind: str, intra_threads: int, inter_threads: int) -> Engine:
    """Import TensorFlow, which takes seconds: after the parent-death signal is armed."""
    gc.disable()  # what an import makes stays: to look for garbage among it takes a sixth of the time
    with _quiet():
        from workers.runner.engine import TensorFlowEngine

        engine = TensorFlowEngine(kind, intra_threads=intra_threads, inter_threads=inter_threads)
    gc.enable()
    return engine


if __name__ == "__main__":
    main()
