"""The supervisor's side of the runner's socket: load, run, and know at once when the runner dies."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program import errors
from signalbox.program.errors import LeaseLost, ResultTooLarge, RunnerCrashed, SignalboxError, TooLarge, Unavailable
from signalbox.wire.warmups import WarmUp
from workers.guard.link import RunnerEnds
from workers.host import gauges
from workers.runner import frames
from workers.runner.errortext import without_paths
from workers.runner.wire import FROZEN_S, LOAD_S, RunnerLost, RunnerWire
from workers.sandbox.confinement import Confinement

_MESSAGE_CHARACTERS: Final = 2000
_DIGEST: Final = re.compile(r"([0-9a-f]{64})?\Z")
_BY_CODE: Final = {
    kind.code: kind
    for kind in (
        errors.InvalidInput,
        errors.InvalidRequest,
        errors.NotFound,
        errors.ModelError,
        errors.OutOfMemory,
        errors.RunnerCrashed,
        errors.LeaseLost,
        errors.Bug,
        errors.ResultTooLarge,
    )
}


Stage = Callable[[Path], AbstractAsyncContextManager[Path]]
"""See :meth:`workers.runner.staging.Stages.staged`."""
_LAST_ANSWERS_S: Final = 1.0
"""How long after a process's death its answers may still be read; they are followed by the end of its socket."""


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one run, in the order of the jobs.

    frames: one tensors frame a job, to be committed as it is; empty where ``errors`` has its index.
    errors: jobs the model refused while others of the same batch succeeded (they ran one by one).
    """

    frames: list[bytes]
    seconds: float
    errors: dict[int, SignalboxError] = {}


class RunnerLink:
    """One runner as the supervisor sees it; the same object serves every process that takes its place.

    All methods but :meth:`restart` and :meth:`kill` raise :class:`LeaseLost` while the runner is not
    let into the device, and :class:`RunnerCrashed` when the process dies of them, :class:`RunnerLost` when it
    dies of another. The process works on one request after another: the time of each begins when those before it are
    answered.
    """

    def __init__(
        self, kill: Callable[[], None], *, stage: Stage, frame_limit_bytes: int, frozen_s: float = FROZEN_S
    ) -> None:
        """``kill`` ends the present process at once (the guard does it); another is started then.

        stage: shows the process the files of a version while it loads them. frozen_s: a process that has not beaten
        for so long is ended.
        """
        self.pid = 0
        self._dead_pid = 0
        self.token = 0
        self.sandbox = Confinement()
        self.restarts = 0
        """Processes that died while they were inside the device: another one took the place of each."""
        self.is_useful = False
        """Whether the present process, or the last one, has answered anything."""
        self.died = asyncio.Event()
        self.died.set()
        self.entered = asyncio.Event()
        self.ready = asyncio.Event()
        self._kill = kill
        self._stage = stage
        self._limit, self._frozen_s = frame_limit_bytes, frozen_s
        self._wire: RunnerWire | None = None
        self._loaded: dict[tuple[str, int], frames.VersionLoaded] = {}
        self._last_id = 0

    @property
    def loaded(self) -> Mapping[tuple[str, int], frames.VersionLoaded]:
        """(model, version) in the memory of the present process; empty after a crash or a hand-over
        that ended it. The only truth about residency: read it after every :meth:`LeasedDevice.held`."""
        return self._loaded

    async def load(
        self,
        model: str,
        version: int,
        path: str,
        warm: bool = True,
        *,
        warm_ups: tuple[WarmUp, ...] = (),
        digest: str = "",
        timeout_s: float = LOAD_S,
        is_beside: bool = False,
    ) -> frames.VersionLoaded:
        """Load the SavedModel directory ``path`` as (model, version); loading again is free.

        The process sees the files only meanwhile, staged: it digests what it loads.
        warm_ups: run after those that the files bring, where ``warm`` is set.
        digest: of its files when they were registered; the runner refuses others. Empty = any.
        timeout_s: until they are staged, and again from then on.
        is_beside: the process serves other requests meanwhile. One at a time.
        Raises :class:`ModelError` (it cannot be loaded), :class:`OutOfMemory`, :class:`Unavailable` (not staged).
        """
        wire = self._usable()
        if (known := self._loaded.get((model, version))) is not None:
            return known
        async with AsyncExitStack() as stages:
            try:
                async with asyncio.timeout(timeout_s):
                    staged = await stages.enter_async_context(self._stage(Path(path)))
            except TimeoutError as error:
                raise Unavailable(
                    f"The version could not be laid out for its load within {timeout_s:g} s: the disk of the models or"
                    " of SIGNALBOX_WORKER_STAGING_DIR is slow or away."
                ) from error
            self._last_id += 1
            request = frames.Load(self._last_id, model, version, str(staged), warm, digest, is_beside, warm_ups)
            try:
                answer = await self._ask(request, timeout_s, "load", is_beside=is_beside)
            except errors.DeadlineExceeded as error:
                raise errors.DeadlineExceeded(
                    f"The load did not end within {timeout_s:g} s; SIGNALBOX_WORKER_LOAD_S allows more."
                ) from error
        if not isinstance(answer, frames.VersionLoaded) or answer.size_bytes < 0 or not _DIGEST.match(answer.digest):
            raise self._nonsense(answer)
        if self._usable() is not wire:
            raise RunnerLost("The runner was replaced while it loaded the version.")
        self._loaded[model, version] = answer
        return answer

    async def try_joining(self, model: str, version: int, *, seconds: float, timeout_s: float) -> frames.JoiningTried:
        """Try whether joined requests of a loaded version get the same answers as alone; runs go on beside it.

        seconds: no run of the trial begins later. timeout_s: of work, then the process is killed.
        Raises :class:`NotFound` (not loaded).
        """
        self._last_id += 1
        request = frames.TryJoining(self._last_id, model, version, seconds)
        answer = await self._ask(request, timeout_s, "trial", is_beside=True)
        if not isinstance(answer, frames.JoiningTried):
            raise self._nonsense(answer)
        return answer

    async def unload(self, model: str, version: int, *, timeout_s: float = 30.0) -> None:
        """Drop (model, version); idempotent. On a GPU the memory returns to TensorFlow, not to others."""
        if self._loaded.pop((model, version), None) is not None:
            self._last_id += 1
            await self._ask(frames.Unload(self._last_id, model, version), timeout_s, "unload")

    async def run(
        self,
        model: str,
        version: int,
        signature: str,
        inputs: Sequence[bytes],
        outputs: tuple[str, ...] = (),
        *,
        timeout_s: float = 60.0,
    ) -> RunReport:
        """Run ``signature`` once on all jobs: their inputs are joined along dimension 0, rows split back.

        inputs: one tensors frame a job, as it was received. More than one run may be asked for before
        the first is answered. Raises :class:`ModelError` when the model
        fails for every job, :class:`InvalidInput`, :class:`NotFound` (not loaded),
        :class:`OutOfMemory`, :class:`ResultTooLarge`, and :class:`DeadlineExceeded` after
        ``timeout_s`` of work (then the process is killed, since nothing else stops a kernel).
        """
        jobs = list(inputs)
        self._last_id += 1
        request = frames.RunSignature(self._last_id, self.token, model, version, signature, jobs, outputs)
        answer = await self._ask(request, timeout_s, "run")
        if not isinstance(answer, frames.Ran) or len(answer.frames) != len(jobs):
            raise self._nonsense(answer)
        return RunReport(
            frames=answer.frames,
            seconds=answer.seconds,
            errors={index: _error(*facts) for index, facts in answer.errors.items()},
        )

    async def run_shadow(
        self,
        model: str,
        version: int,
        signature: str,
        inputs: Sequence[bytes],
        outputs: tuple[str, ...],
        expected: Sequence[bytes],
        *,
        tolerance: float,
        timeout_s: float,
    ) -> frames.ShadowRan:
        """Run as :meth:`run` and compare the outputs with the frames ``expected``, one a job. Raises as :meth:`run`."""
        self._last_id += 1
        request = frames.RunShadow(
            self._last_id, self.token, model, version, signature, [*inputs], outputs, [*expected], tolerance
        )
        answer = await self._ask(request, timeout_s, "shadow")
        if not isinstance(answer, frames.ShadowRan) or not 0 <= answer.failed <= answer.outside <= answer.compared:
            raise self._nonsense(answer)
        return answer

    def flooded(self) -> None:
        """The process prints without end: end it. Whom it worked for is told so, the others that it died."""
        gauges.RUNNER_REFUSED.labels("output").inc()
        if self._wire is not None:
            self._wire.fail(ResultTooLarge("The model printed more than is taken from it."))
        self._kill()

    def kill(self) -> None:
        """End the process now; runs in flight raise :class:`RunnerCrashed`. Another is started."""
        self._end()

    async def restart(self) -> None:
        """Kill the process if it lives and wait until the next one is inside the device, empty.

        Bounded by the lease: if the lease is lost meanwhile this raises :class:`LeaseLost`.
        """
        if not self.died.is_set():
            if self._wire is not None:
                self._wire.fail(RunnerLost())  # whose death it is has been told
            self._end()
            await self.died.wait()
        if not self.token:
            raise LeaseLost("The runner is outside the device.")
        await self.entered.wait()
        if not self.token:
            raise LeaseLost("The lease was lost while the runner restarted.")

    # -- used by the device ------------------------------------------------------------------------

    async def attach(self, ends: RunnerEnds, pid: int) -> None:
        """A new process serves this link from now on, unless it is known to have died already.

        A supervisor that was stopped for a while learns of birth and death in one breath.
        """
        if pid == self._dead_pid:
            ends.close()
            return
        self.pid = pid
        self.is_useful = False
        self._loaded.clear()
        self.died.clear()
        loop = asyncio.get_running_loop()
        wire = RunnerWire(self._limit, on_ready=self._on_ready, kill=self._kill, frozen_s=self._frozen_s)
        await loop.create_connection(lambda: wire.heartbeat, sock=ends.beats)
        await loop.create_connection(lambda: wire, sock=ends.data)
        if pid == self._dead_pid:
            wire.fail()
        else:
            self._wire = wire

    def detach(self, pid: int = 0) -> None:
        """The process is dead. pid: of the one that died, where it is known."""
        self._dead_pid = pid
        if self.token and self.pid:
            self.restarts += 1
        wire, self._wire = self._wire, None
        self.pid = 0
        self._loaded.clear()
        self.entered.clear()
        self.ready.clear()
        self.died.set()
        if wire is not None:  # what it had answered before is not lost
            asyncio.get_running_loop().call_later(_LAST_ANSWERS_S, wire.fail)

    async def until_ready(self) -> None:
        """Wait until the process has imported TensorFlow, or died."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.ready, self.died)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def admit(self, token: int) -> None:
        """The guard let the process in under ``token``."""
        self.token = token
        self.entered.set()

    def expel(self) -> None:
        """The process is outside the device, or dead, and the lease is gone: who waits is told."""
        self.token = 0
        self.entered.set()  # wakes restart(), which then sees that there is no token
        self.entered.clear()

    def _end(self) -> None:
        if self._wire is None:
            self._kill()
        else:
            self._wire.is_ended_by_us = True
            self._wire.end()

    def _usable(self) -> RunnerWire:
        """The socket of the present process. Raises :class:`RunnerLost` where none is there, or it is dying."""
        wire = self._wire
        if wire is None or wire.is_broken or wire.is_dying:
            raise RunnerLost("The runner is not running.")
        return wire

    def _on_ready(self, ready: frames.RunnerStarted) -> None:
        self.sandbox = ready.sandbox
        self.ready.set()

    async def _ask(
        self, request: frames.Request, timeout_s: float, phase: str, *, is_beside: bool = False
    ) -> frames.Answer:
        wire = self._usable()
        if not self.entered.is_set():
            raise LeaseLost("The runner is outside the device.")
        data = frames.pack(request)
        if len(data) > self._limit:
            raise TooLarge(f"The inputs take {len(data)} bytes; {self._limit} are taken.")
        try:
            answer = await wire.send(request.id, data, timeout_s, is_beside=is_beside)
        except ResultTooLarge:
            await self.died.wait()  # it was ended for that: no further request may go to it
            raise
        self.is_useful = True
        if isinstance(answer, frames.RequestFailed):
            if answer.code == errors.OutOfMemory.code:
                gauges.OUT_OF_MEMORY.labels(phase).inc()
            raise _error(answer.code, answer.message)
        return answer

    def _nonsense(self, answer: frames.Answer) -> RunnerCrashed:
        """An answer that is none: such a runner is as good as crashed, and is not asked again."""
        gauges.RUNNER_REFUSED.labels("answer").inc()
        if self._wire is not None:
            self._wire.end()
        return RunnerCrashed(f"The runner answered with a {type(answer).__name__} that does not fit.")


def _error(code: str, message: str) -> SignalboxError:
    """The error a runner tells of, without our paths. Its text is in no log: a model may name its inputs in it."""
    return _BY_CODE.get(code, errors.ModelError)(without_paths(message[:_MESSAGE_CHARACTERS]))
