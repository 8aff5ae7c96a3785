"""Model versions in the runner's memory: loaded on demand or ahead of it, under the lease only.

Loads go one at a time, beside runs; callers that need the same version wait for the same load. What does not
fit makes others leave, in the order of :mod:`signalbox.wire.eviction`.
A version that is asked for ahead is loaded and warmed up before anything it replaces is unloaded, so a switch
costs no request its answer. A load that uses the memory up is tried once more in a fresh runner, alone. A load has the
runner's turn, and runs wait for it, only where one of the two may be what takes runners down.

The memory budget may be passed between the end of a load, which tells the true size, and the unloads that make up
for it; no run begins in between.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from signalbox.jobs.times import LOAD, VERIFY, WARM, Span
from signalbox.program import log
from signalbox.program.errors import (
    LeaseLost,
    NotFound,
    NotServing,
    OutOfMemory,
    RunnerCrashed,
    SignalboxError,
    Unavailable,
)
from signalbox.wire.modeldocs import Model, Version
from workers.diskcache.place import LocalFiles, Place
from workers.host import gauges
from workers.residency.activity import Activity
from workers.residency.cache import DoesNotFit, Key, ModelCache
from workers.residency.retiring import Retiring
from workers.residency.room import Room
from workers.residency.trials import Trials
from workers.runner.frames import VersionLoaded
from workers.runner.link import RunnerLink
from workers.runner.wire import LOAD_S, RunnerLost
from workers.statistics.lru import Lru
from workers.statistics.worker import Statistics

_MOST_REMEMBERED: Final = 4096
_AGAIN_S: Final = 10.0
"""When a load ahead of need that the worker had no room for is tried again."""
Renew = Callable[[], Awaitable[None]]
"""Puts a fresh runner in the place of the present one; :meth:`ResidentVersions.forget` is called meanwhile."""


class VersionDropped(SignalboxError):
    """The catalog has the model, and this version of it no more."""

    code = NotFound.code


def find_version(model: Model | None, version: int) -> Version | None:
    """The catalog's entry of one version, if it may serve."""
    if model is None:
        return None
    return next((v for v in model.versions if v.version == version), None)


class ResidentVersions:
    """The versions that the runner has loaded, for as long as one lease is held."""

    def __init__(
        self,
        runner: RunnerLink,
        cache: ModelCache,
        find: Callable[[str], Model | None],
        activity: Activity,
        changed: asyncio.Event,
        *,
        is_spare: Callable[[Key], bool] = lambda _: False,
        may_load: Callable[[], bool] = lambda: True,
        due: asyncio.Event | None = None,
        statistics: Statistics | None = None,
        retire_s: float = 10.0,
        load_s: float = LOAD_S,
        files: LocalFiles | None = None,
    ) -> None:
        """may_load: whether the device is ours alone, so that more may be put there. statistics: outlive the hold.

        changed: is set when presence should tell of it. due: is set when :meth:`keep_warm` has something to do: the
        trial of a version that was loaded for a job, or the unload of one that was in use when the catalog dropped it.
        retire_s: see :class:`workers.residency.retiring.Retiring`. load_s: longest time of a load. files: of the
        versions; they outlive the hold.
        """
        statistics = statistics or Statistics()
        self._runner = runner
        self._cache = cache
        self.is_ready: Callable[[Key], bool] = cache.__contains__
        """Whether a run needs no load."""
        self._find = find
        self._activity = activity
        self._changed = changed
        self._is_spare = is_spare
        self._may_load = may_load
        self._due = due or asyncio.Event()
        self._dropped: set[Key] = set()
        """Versions in use that the catalog has no more."""
        self._evicting: set[Key] = set()
        """Versions that an operator has evicted by hand and that have yet to leave, though a job may need them."""
        self._evicted: set[Key] = set()
        """Those that have left: they are not loaded ahead of need before a job, or an operator, has asked for them."""
        self._sizes = statistics.sizes
        self._load_rate = statistics.load_rate
        self._trials = Trials(runner, statistics.joinings, activity)
        self._retiring = Retiring(retire_s)
        self._load_s = load_s
        self._files = files or LocalFiles()
        self._is_put_off = False
        self._loop = asyncio.get_running_loop()
        self._one_load = asyncio.Lock()
        self._loading: Key | None = None
        self.on_change: Callable[[str], None] = lambda _: None
        """Called with a model's name when one of its versions becomes ready, or when room for it is made."""
        self.is_waited: Callable[[Key], bool] = lambda _: False
        """Whether jobs that may begin wait for a version that is ready."""
        self._room = Room(runner, cache, self._files, changed, is_spare=is_spare, is_waited=self._waits_for)
        self._spans: Lru[Key, tuple[Span, ...]] = Lru(_MOST_REMEMBERED)
        self._too_large: Lru[Key, None] = Lru(_MOST_REMEMBERED)
        """Versions that did not fit alone: no runner is ended for them again."""
        self.loads = 0
        cache.clear()
        for key in cache.failures():  # a new hold is a new try
            cache.drop(key)
        for (model, version), report in runner.loaded.items():  # kept across a hand-over
            cache.reserve((model, version), report.size_bytes)
            cache.mark_ready((model, version))
            cache.came_in((model, version), report.seconds + self._fetch_s((model, version)))
        self._files.release_all(but=runner.loaded)

    @property
    def may_run(self) -> bool:
        """Whether runs may begin: no load waits for one to end, and the memory budget is kept."""
        return not (self._room.is_waiting or self._cache.is_over)

    def has_room(self, key: Key) -> bool:
        """Whether a version may be loaded without any leaving that is in use or that jobs wait for."""
        return self._cache.has_room(self._expected(key), is_waited=self.is_waited)

    def _waits_for(self, key: Key) -> bool:
        return self.is_waited(key)

    def _expected(self, key: Key) -> int:
        """Bytes to make room for before a load; 0 where the catalog has no such version."""
        version = find_version(self._find(key[0]), key[1])
        return self._sizes.expected(key[0], version) if version is not None else 0

    def may_serve(self, model: Model) -> bool:
        """Whether jobs of the model are worth asking for: some version is there, or may be loaded from files here."""
        if any((model.name, v.version) in self._cache for v in model.versions):
            return True
        return self._may_load() and self._files.may_serve(model)

    def lacks_files(self, model: Model) -> bool:
        """Whether a model of which nothing may be served needs a fetch that is not under way."""
        is_coming = any(self._files.is_fetching(model.name, version) for version in model.versions)
        return not is_coming and not self._files.may_serve(model)

    def fetch(self, model: Model) -> None:
        """Have the versions fetched that requests get, as jobs of the model wait. Idempotent."""
        newest = max((version.version for version in model.versions), default=0)
        targets = self._retiring.targets(model.name) or (model.default_version or newest,)
        self._files.fetch(model, targets)

    def is_at_hand(self, key: Key) -> bool:
        """Whether a run or a load of a version may begin: it is loaded, or its files are here. If not, they will be."""
        if key in self._cache:
            return True
        version = find_version(self._find(key[0]), key[1])
        if version is None or self._files.can_be_tried(key[0], version):
            return True
        self._files.request(key[0], version)
        return False

    def is_loading_another(self, model: str) -> bool:
        """Whether a version of another model is being loaded."""
        return self._loading is not None and self._loading[0] != model

    def load_spans(self, key: Key) -> tuple[Span, ...]:
        """When the last load of a version digested its files, loaded them, and ran its warm-up requests."""
        return self._spans.get(key, ())

    async def pin(
        self, key: Key, renew: Renew, begins: Callable[[], None] = lambda: None, *, is_beside: bool = True
    ) -> bool:
        """Make the version ready and keep it until :meth:`unpin`. Returns whether it had to load.

        begins: called when its load begins, after those that were before it. is_beside: runs may go on beside its load,
        unless one of them may be what takes runners down.

        Raises :class:`VersionDropped` when the catalog no longer has it, :class:`NotServing` when it cannot be loaded,
        :class:`DoesNotFit`, :class:`RunnerCrashed`, :class:`LeaseLost`,
        :class:`Unavailable` while a foreign process uses the device, or the worker has no room to lay the version out.
        """
        has_loaded = False
        while not self.take(key):
            async with self._one_load:
                if key not in self._cache:
                    begins()
                    await self._load(key, renew, is_beside=is_beside and not self._activity.has_suspect)
                    has_loaded = True
                else:
                    await self._room.shrink()
        return has_loaded

    def take(self, key: Key) -> bool:
        """Keep a version until :meth:`unpin` that a run may begin on now. False where it is not here, or lacks room."""
        if not self._cache.pin(key):
            return False
        self._retiring.used(key, self._loop.time())
        self._evicted.discard(key)
        return True

    def unpin(self, key: Key) -> None:
        """A run has ended."""
        self._cache.unpin(key)
        self._retiring.used(key, self._loop.time())
        self._room.freed.set()
        if key in self._dropped or key in self._evicting:
            self._due.set()

    @asynccontextmanager
    async def lent(self, key: Key) -> AsyncIterator[bool]:
        """Keep a version that is here for a run that nobody waits for; no load and no trial begins meanwhile.

        False where one is under way, or the version is not here.
        """
        if self._one_load.locked():
            yield False
            return
        async with self._one_load:
            is_here = self._cache.pin(key, is_asked=False)
            try:
                yield is_here
            finally:
                if is_here:
                    self.unpin(key)

    def look_again(self) -> None:
        """Have :meth:`keep_warm` load again what is gone: the runner was lost for nobody's job."""
        self._due.set()

    def lost(self, key: Key) -> None:
        """The runner does not have it after all. Harmless where another run has found that out and loads it again."""
        if key in self._cache:
            self._cache.drop(key)
            self._files.release(key)
            self._changed.set()

    def forget(self) -> None:
        """The runner has died and everything in it."""
        self._cache.clear()
        self._files.release_all()
        self._room.freed.set()
        self._changed.set()

    async def keep_warm(self, wanted: Sequence[Key], *, is_ahead: bool = True, asked: Sequence[Key] = ()) -> None:
        """Load what is wanted, in order, as far as it fits without pushing out what is wanted too.

        What does not fit beside the version it is to take the place of is told as ``crowded``. Tries joined requests of
        what is here and was not tried. Unloads versions that
        the catalog no longer has, and those that are wanted no longer once those that are wanted instead are here.
        Failures are logged and stay visible while the catalog has the version and it is placed here. What would have to
        be fetched first is so only where it takes the place of a version that is here.
        is_ahead: otherwise only what takes the place of a version that is here is loaded before it is needed. asked:
        these come first, as if a job waited, but never in the place of what a job waits for.
        """
        self._cache.uncrowd()
        self._is_put_off = False
        self._retiring.follow(dict.fromkeys([*wanted, *asked]), self._loop.time())
        for key in asked:
            self._evicted.discard(key)
            if not (key in self._cache or self._cache.failure(key)) and self._is_here(key, is_requested=True):
                await self._load_ahead(key, is_asked=True)
        away = self._evicting | self._evicted
        for key in wanted:
            if key in self._cache or self._cache.failure(key) or key in away:
                continue
            has_another = self._has_another(key)
            if (has_another or is_ahead) and self._is_here(key, is_requested=has_another):
                await self._load_ahead(key)
        await self._try_resident()
        await self._withdraw()
        await self._retire()
        await self._evict()
        await self._room.free_disk()

    def _is_here(self, key: Key, *, is_requested: bool) -> bool:
        """Whether the files of a version are here, or need not be. is_requested: fetch them if not."""
        version = find_version(self._find(key[0]), key[1])
        if version is None or self._files.find(key[0], version) is not None:
            return True
        if is_requested:
            self._files.request(key[0], version)
        return False

    def retry_failed(self, model: str) -> None:
        """The model was published again: what failed to load is tried once more."""
        self._trials.retry_untried(model)
        for key in self._cache.failures():
            if key[0] == model:
                self._cache.drop(key)
                self._changed.set()

    def due_in_s(self) -> float | None:
        """When :meth:`keep_warm` has something to load again, or to unload unless it is used; None = never."""
        retires_in_s = self._retiring.next_in_s(self._loop.time())
        if not self._is_put_off:
            return retires_in_s
        return _AGAIN_S if retires_in_s is None else min(_AGAIN_S, retires_in_s)

    async def _load_ahead(self, key: Key, *, is_asked: bool = False) -> None:
        """Load it if it fits; not beside a run that may be what takes runners down."""
        while True:
            await self._activity.until_trusted()
            async with self._one_load:
                if not self._activity.has_suspect:
                    await self._load_ahead_now(key, is_asked=is_asked)
                    return

    async def _load_ahead_now(self, key: Key, *, is_asked: bool) -> None:
        if key in self._cache or not self._may_load():
            return
        if self._room.fits_freely(self._expected(key)) or (is_asked and self.has_room(key)):
            try:
                await self._load(key, None)
            except (NotServing, VersionDropped, OutOfMemory) as error:
                log.warning("model.load_failed", model=key[0], version=key[1], why=str(error))
                if isinstance(error, OutOfMemory) and self._has_another(key):
                    self._wants_room(key)
            except Unavailable as error:  # it says nothing of the version: what is here stays
                log.warning("model.load_failed", model=key[0], version=key[1], why=str(error))
                self._is_put_off = True
                return
        if key not in self._cache and self._has_another(key):
            self._cache.crowd(key)
            self._changed.set()

    async def _try_new(self, model: Model, version: Version) -> None:
        """Try joined requests of a version before requests get it."""
        try:
            await self._trials.run(model, version)
        except (SignalboxError, asyncio.CancelledError):
            self._cache.drop((model.name, version.version))
            self._changed.set()
            raise

    async def _try_resident(self) -> None:
        """Try joined requests of the versions that are here, where their models ask for it."""
        for key in self._cache.ready():
            while self._trials.is_due(model := self._find(key[0]), version := find_version(model, key[1])):
                await self._activity.until_trusted()
                async with self._one_load:
                    if self._activity.has_suspect:
                        continue
                    if model is None or version is None or not self._may_load():
                        break
                    if not self._cache.pin(key, is_asked=False):
                        break
                    try:
                        await self._trials.run(model, version)
                    finally:
                        self.unpin(key)
                        self._changed.set()

    def _wants_room(self, key: Key) -> None:
        """Note that it used the memory up beside the version it replaces: it may fit when all that is idle has left."""
        version = find_version(self._find(key[0]), key[1])
        if version is None or self._sizes.expected(key[0], version) >= self._cache.budget_bytes:
            return
        if self._cache.failure(key):
            self._sizes.measured(key[0], version, self._cache.budget_bytes)
            self._cache.drop(key)

    def _has_another(self, key: Key) -> bool:
        """Whether another version of the model is in memory."""
        model = self._find(key[0])
        versions = model.versions if model is not None else ()
        return any((key[0], v.version) in self._cache for v in versions if v.version != key[1])

    async def _withdraw(self) -> None:
        self._dropped.clear()
        for key in self._cache.ready():
            if find_version(self._find(key[0]), key[1]) is not None:
                continue
            if self._cache.is_idle(key):
                await self._room.unload(key)
            else:
                self._dropped.add(key)
        for key in self._cache.failures():
            if self._is_spare(key):
                self._cache.drop(key)
                self._changed.set()

    def evict(self, key: Key) -> None:
        """Have :meth:`keep_warm` unload it once no run uses it, and not load it again before somebody asks for it."""
        if key in self._cache and key not in self._cache.kept():
            self._evicting.add(key)
            self._due.set()

    async def _evict(self) -> None:
        for key in filter(self._cache.is_idle, [*self._evicting]):
            await self._room.unload(key)
            self._evicting.discard(key)
            self._evicted.add(key)

    async def _retire(self) -> None:
        """Unload what requests no longer get, once what they get now is here, or only waits for the room."""
        for key in self._retiring.due(self._loop.time()):
            targets = self._retiring.targets(key[0])
            if all(self._cache.state((key[0], v)) in {"ready", "crowded"} for v in targets):
                is_due = key in self._retiring.due(self._loop.time())  # or a run has used it meanwhile
                if is_due and self._cache.is_idle(key):
                    await self._room.unload(key)
                if key not in self._cache:
                    self._retiring.gone(key)

    async def _load(self, key: Key, renew: Renew | None, *, is_beside: bool = True) -> None:
        """Load a version; without ``renew`` ahead of need: one try, and not kept if others would have to leave."""
        self._loading = key
        try:
            await self._load_now(key, renew, is_beside=is_beside)
        finally:
            self._loading = None
            self.on_change(key[0])

    async def _load_now(self, key: Key, renew: Renew | None, *, is_beside: bool) -> None:
        if not self._may_load():
            raise Unavailable("Another program computes on the GPU: nothing is loaded meanwhile.")
        name, number = key
        model = self._find(name)
        version = find_version(model, number)
        if model is None:  # the reconciler ends its jobs, if it was not lost
            raise Unavailable(f"Model {name} is not in the catalog now.")
        if version is None:
            raise VersionDropped(
                f"Version {number} of model {name} is not served any more: it left the catalog after the job was"
                " accepted."
            )
        size = self._sizes.expected(name, version)
        self._require_possible(key, size)
        place = await self._files.open(name, version)
        try:
            report = await self._put_in_room(key, version, place, size, renew, is_beside=is_beside)
        except BaseException:
            self._files.release(key)
            raise
        self._too_large.pop(key, None)
        self.loads += 1
        log.info(
            "model.loaded", model=name, version=number, size_bytes=report.size_bytes, seconds=round(report.seconds, 3)
        )
        self._load_rate.measured(version.size_bytes, report.seconds)
        gauges.LOAD_SECONDS.labels(name).observe(report.seconds)
        size = report.size_bytes or size
        self._sizes.measured(name, version, size)
        self._cache.came_in(key, report.seconds + self._fetch_s(key))
        model = self._find(name)
        if model is not None and self._trials.is_due(model, version):
            if renew is None:
                await self._try_new(model, version)
            else:
                self._due.set()
        await self._book(key, size, is_needed=renew is not None)

    def _fetch_s(self, key: Key) -> float:
        """What the last fetch of a version took, 0 where none is remembered."""
        fetched = self._files.fetched(key)
        return max(0.0, fetched[1] - fetched[0]) if fetched is not None else 0.0

    async def _put_in_room(
        self, key: Key, version: Version, place: Place, size: int, renew: Renew | None, *, is_beside: bool
    ) -> VersionLoaded:
        try:
            await self._room.make(size)
        finally:
            self.on_change(key[0])
        try:
            report = await self._put(key, place, size, is_beside=is_beside)
        except OutOfMemory as error:
            if renew is None:
                raise
            report = await self._put_alone(key, version, size, renew, error)
        except NotServing:
            self._files.doubt(key[0], version)
            raise
        try:
            await self._files.settle(key[0], version, report.digest)
        except BaseException as error:
            await self._room.unload(key)
            if isinstance(error, NotServing):
                self._cache.fail(key, error.public_message)
            raise
        return report

    async def _book(self, key: Key, size: int, *, is_needed: bool) -> None:
        """Keep the budget with the size that was measured; only then the version may be used.

        Raises :class:`DoesNotFit` where it is too large alone, :class:`RunnerLost`.
        """
        self._cache.measure(key, size)
        if size > self._cache.budget_bytes:
            await self._room.unload(key)
            self._require_possible(key, size)
        if is_needed:
            await self._room.shrink()
        else:
            await self._room.shrink_freely(key)
        if not self._cache.size_bytes(key):
            raise RunnerLost("The runner died while room was made.")
        self._cache.mark_ready(key)
        self._changed.set()

    def _require_possible(self, key: Key, size: int) -> None:
        """Raises :class:`DoesNotFit`, and has presence tell it, for what the whole budget does not hold."""
        budget = self._cache.budget_bytes
        if size > budget:
            message = (
                f"Version {key[1]} of model {key[0]} takes {size} bytes; this worker's memory budget is"
                f" {budget}. Raise the budget or serve the model elsewhere."
            )
            self._cache.fail(key, message)
            self._changed.set()
            raise DoesNotFit(message, needed=size, budget=budget)

    async def _put_alone(
        self, key: Key, version: Version, size: int, renew: Renew, error: OutOfMemory
    ) -> VersionLoaded:
        """What was there before, and an allocator in pieces, may have been in the way."""
        if key not in self._too_large:
            log.warning("model.out_of_memory", model=key[0], version=key[1], why=str(error))
            await renew()
            try:
                return await self._put(key, await self._files.open(key[0], version), size)
            except OutOfMemory as again:
                error = again
            self._too_large[key] = None
        raise DoesNotFit(
            f"Version {key[1]} of model {key[0]} does not fit into the device: {error.public_message}"
        ) from error

    async def _put(self, key: Key, place: Place, size: int, *, is_beside: bool = False) -> VersionLoaded:
        """Have the runner load it. Its place tells how that ended, but for the size after a good end."""
        name, number = key
        self._cache.reserve(key, size)
        self._changed.set()
        try:
            with self._activity.loading(key, is_beside=is_beside):
                model = self._find(name)
                report = await self._runner.load(
                    name,
                    number,
                    place.folder,
                    warm=True,
                    warm_ups=model.warm_ups if model is not None else (),
                    digest=place.digest,
                    timeout_s=self._load_s,
                    is_beside=is_beside,
                )
                self._spans[key] = _spans(report, self._activity.clock())
                return report
        except (RunnerLost, LeaseLost, Unavailable):  # nothing is known of this version
            self._cache.drop(key)
            raise
        except RunnerCrashed:
            self._cache.fail(key, "The runner died while loading it.")
            raise
        except SignalboxError as error:
            self._cache.fail(key, error.public_message)
            if isinstance(error, OutOfMemory):
                raise
            raise NotServing(f"Version {number} of model {name} cannot be loaded: {error.public_message}") from error
        except asyncio.CancelledError:
            self._cache.drop(key)
            raise
        finally:
            self._changed.set()


def _spans(report: VersionLoaded, ended: float) -> tuple[Span, ...]:
    """What of a load that has ended now took how long. A hostile runner's figures spoil nothing but these."""
    began = ended - report.seconds
    verified, warms_up = began + report.verify_s, ended - report.warm_s
    return Span(VERIFY, began, verified), Span(LOAD, verified, warms_up), Span(WARM, warms_up, ended)
