"""Model versions in the runner's memory: loaded on demand or ahead of it, under the lease only.

Loads go one at a time; callers that need the same version wait for the same load. What does not
fit makes others leave: first what is placed elsewhere by now, then the least recently used. A version
that is asked for ahead is loaded and warmed up before anything it replaces is unloaded, so a switch
costs no request its answer. A load that uses the memory up is tried once more in a fresh runner, alone.

The memory budget may be passed between the end of a load, which tells the true size, and the unloads that make up
for it; no run begins in between.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from signalbox.program import log
from signalbox.program.errors import LeaseLost, NotServing, OutOfMemory, RunnerCrashed, SignalboxError, Unavailable
from signalbox.wire.messages import Model, Version
from workers.diskcache.place import LocalFiles, Place
from workers.residency.activity import Activity
from workers.residency.cache import DoesNotFit, Key, ModelCache
from workers.residency.retiring import Retiring
from workers.residency.trials import Trials
from workers.runner.frames import VersionLoaded
from workers.runner.link import RunnerLink
from workers.runner.wire import RunnerLost
from workers.statistics.lru import Lru
from workers.statistics.worker import Statistics

_MOST_REMEMBERED: Final = 4096
_AGAIN_S: Final = 10.0
"""When a load ahead of need that the worker had no room for is tried again."""
Renew = Callable[[], Awaitable[None]]
"""Puts a fresh runner in the place of the present one; :meth:`ResidentVersions.forget` is called meanwhile."""


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
        untried: asyncio.Event | None = None,
        statistics: Statistics | None = None,
        retire_s: float = 10.0,
        files: LocalFiles | None = None,
    ) -> None:
        """may_load: whether the device is ours alone, so that more may be put there. statistics: outlive the hold.

        changed: is set when presence should tell of it. untried: is set when a version was loaded for a job, and
        :meth:`keep_warm` has a trial to do with it.
        retire_s: see :class:`workers.residency.retiring.Retiring`. files: of the versions; they outlive the hold.
        """
        statistics = statistics or Statistics()
        self._runner = runner
        self._cache = cache
        self._find = find
        self._activity = activity
        self._changed = changed
        self._is_spare = is_spare
        self._may_load = may_load
        self._untried = untried or asyncio.Event()
        self._sizes = statistics.sizes
        self._trials = Trials(runner, statistics.joinings, activity)
        self._retiring = Retiring(retire_s)
        self._files = files or LocalFiles()
        self._is_put_off = False
        self._loop = asyncio.get_running_loop()
        self._one_load = asyncio.Lock()
        self._loading: Key | None = None
        self._freed = asyncio.Event()
        self._too_large: Lru[Key, None] = Lru(_MOST_REMEMBERED)
        """Versions that did not fit alone: no runner is ended for them again."""
        self.loads = 0
        cache.clear()
        for key in cache.failures():  # a new hold is a new try
            cache.drop(key)
        for (model, version), report in runner.loaded.items():  # kept across a hand-over
            cache.reserve((model, version), report.size_bytes)
            cache.mark_ready((model, version))
        self._files.release_all(but=runner.loaded)

    def is_ready(self, key: Key) -> bool:
        """A run needs no load."""
        return key in self._cache

    def may_serve(self, model: Model) -> bool:
        """Whether jobs of the model are worth asking for: some version is there, or may be loaded from files here."""
        if self._may_load() and self._files.may_serve(model):
            return True
        return any((model.name, v.version) in self._cache for v in model.versions)

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
        version = find_version(self._find(key[0]), key[1])
        if key in self._cache or version is None or self._files.can_be_tried(key[0], version):
            return True
        self._files.request(key[0], version)
        return False

    def is_loading_another(self, model: str) -> bool:
        """Whether a version of another model is being loaded."""
        return self._loading is not None and self._loading[0] != model

    async def pin(self, key: Key, renew: Renew, begins: Callable[[], None] = lambda: None) -> bool:
        """Make the version ready and keep it until :meth:`unpin`. Returns whether it had to load.

        begins: called when its load begins, after those that were before it.

        Raises :class:`NotServing` when the catalog no longer has it or it cannot be loaded,
        :class:`DoesNotFit`, :class:`RunnerCrashed`, :class:`LeaseLost`,
        :class:`Unavailable` while a foreign process uses the device, or the worker has no room to lay the version out.
        """
        has_loaded = False
        while not self._cache.pin(key):
            async with self._one_load:
                if key not in self._cache:
                    begins()
                    await self._load(key, renew)
                    has_loaded = True
                else:
                    await self._shrink()
        self._retiring.used(key, self._loop.time())
        return has_loaded

    def unpin(self, key: Key) -> None:
        """A run has ended."""
        self._cache.unpin(key)
        self._retiring.used(key, self._loop.time())
        self._freed.set()

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
        self._freed.set()
        self._changed.set()

    async def keep_warm(self, wanted: Sequence[Key], *, is_ahead: bool = True) -> None:
        """Load what is wanted, in order, as far as it fits without pushing out what is wanted too.

        What does not fit beside the version it is to take the place of is told as ``crowded``. Tries joined requests of
        what is here and was not tried. Unloads versions that
        the catalog no longer has, and those that are wanted no longer once those that are wanted instead are here.
        Failures are logged and stay visible while the catalog has the version and it is placed here. What would have to
        be fetched first is so only where it takes the place of a version that is here.
        is_ahead: otherwise only what takes the place of a version that is here is loaded before it is needed.
        """
        self._cache.uncrowd()
        self._is_put_off = False
        self._retiring.follow(wanted, self._loop.time())
        for key in wanted:
            if key in self._cache or self._cache.failure(key):
                continue
            has_another = self._has_another(key)
            if (has_another or is_ahead) and self._is_here(key, is_requested=has_another):
                await self._load_ahead(key)
        await self._try_resident()
        await self._withdraw()
        await self._retire()

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

    async def _load_ahead(self, key: Key) -> None:
        """Load it if it fits; not beside a run that may be what takes runners down."""
        while True:
            await self._activity.until_trusted()
            async with self._one_load:
                if not self._activity.has_suspect:
                    await self._load_ahead_now(key)
                    return

    async def _load_ahead_now(self, key: Key) -> None:
        if key in self._cache or not self._may_load():
            return
        if self._fits_freely(key):
            try:
                await self._load(key, None)
            except (NotServing, OutOfMemory) as error:
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
                    if model is None or version is None or not self._may_load() or not self._cache.pin(key):
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
        for key in self._cache.idle():
            is_gone = find_version(self._find(key[0]), key[1]) is None
            if is_gone and self._cache.is_idle(key):  # a run may have begun meanwhile
                await self._unload(key)
        for key in self._cache.failures():
            if self._is_spare(key):
                self._cache.drop(key)
                self._changed.set()

    async def _retire(self) -> None:
        """Unload what requests no longer get, once what they get now is here, or only waits for the room."""
        for key in self._retiring.due(self._loop.time()):
            targets = self._retiring.targets(key[0])
            if all(self._cache.state((key[0], v)) in {"ready", "crowded"} for v in targets):
                is_due = key in self._retiring.due(self._loop.time())  # or a run has used it meanwhile
                if is_due and self._cache.is_idle(key):
                    await self._unload(key)
                if key not in self._cache:
                    self._retiring.gone(key)

    def _fits_freely(self, key: Key) -> bool:
        """Whether it may be loaded ahead of need. What can never fit passes, so that its load says so."""
        version = find_version(self._find(key[0]), key[1])
        size = self._sizes.expected(key[0], version) if version else 0
        free = self._cache.budget_bytes - self._cache.used_bytes
        if size <= free or size > self._cache.budget_bytes:
            return True
        return size <= free + sum(self._cache.size_bytes(k) for k in self._cache.idle() if self._is_spare(k))

    async def _load(self, key: Key, renew: Renew | None) -> None:
        """Load a version; without ``renew`` ahead of need: one try, and not kept if others would have to leave."""
        self._loading = key
        try:
            await self._load_now(key, renew)
        finally:
            self._loading = None

    async def _load_now(self, key: Key, renew: Renew | None) -> None:
        if not self._may_load():
            raise Unavailable("Another program computes on the GPU: nothing is loaded meanwhile.")
        name, number = key
        version = find_version(self._find(name), number)
        if version is None:
            raise NotServing(f"Version {number} of model {name} is no longer served.")
        size = self._sizes.expected(name, version)
        self._require_possible(key, size)
        place = await self._files.open(name, version)
        try:
            report = await self._put_in_room(key, version, place, size, renew)
        except BaseException:
            self._files.release(key)
            raise
        self._too_large.pop(key, None)
        self.loads += 1
        log.info(
            "model.loaded", model=name, version=number, size_bytes=report.size_bytes, seconds=round(report.seconds, 3)
        )
        size = report.size_bytes or size
        self._sizes.measured(name, version, size)
        model = self._find(name)
        if model is not None and self._trials.is_due(model, version):
            if renew is None:
                await self._try_new(model, version)
            else:
                self._untried.set()
        await self._book(key, size, is_needed=renew is not None)

    async def _put_in_room(
        self, key: Key, version: Version, place: Place, size: int, renew: Renew | None
    ) -> VersionLoaded:
        await self._make_room(size)
        try:
            report = await self._put(key, place, size, is_ahead=renew is None)
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
            await self._unload(key)
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
            await self._unload(key)
            self._require_possible(key, size)
        if is_needed:
            await self._shrink()
        else:
            await self._shrink_freely(key)
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

    async def _shrink(self) -> None:
        """Unload what is idle until the budget is kept; wait for what is in use where that does not do."""
        while self._cache.is_over:
            self._freed.clear()
            leaving = self._cache.excess(is_spare=self._is_spare)
            if leaving:
                await self._unload(leaving[0])  # what else is idle may be in use by then
            else:
                await self._freed.wait()  # bounded: every pin is a run with a time limit

    async def _shrink_freely(self, key: Key) -> None:
        """Evict only versions placed elsewhere for one loaded ahead of need; if that does not suffice, unload it."""
        for idle in self._cache.excess(is_spare=self._is_spare):
            if self._is_spare(idle) and self._cache.is_idle(idle):
                await self._unload(idle)
        if self._cache.is_over:
            await self._unload(key)
            raise DoesNotFit(f"Version {key[1]} of model {key[0]} takes more than is free here.")

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

    async def _put(self, key: Key, place: Place, size: int, *, is_ahead: bool = False) -> VersionLoaded:
        """Have the runner load it. Its place tells how that ended, but for the size after a good end."""
        name, number = key
        self._cache.reserve(key, size)
        self._changed.set()
        try:
            with self._activity.loading(key, is_ahead=is_ahead):
                return await self._runner.load(
                    name, number, place.folder, warm=True, digest=place.digest, is_ahead=is_ahead
                )
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

    async def _make_room(self, size: int) -> None:
        while (leaving := self._leaving(size)) != []:
            self._freed.clear()
            if leaving is None:
                await self._freed.wait()  # bounded: every pin is a run with a time limit
            else:
                await self._unload(leaving[0])  # what else is idle may be in use by then

    def _leaving(self, size: int) -> list[Key] | None:
        """What to unload for ``size`` bytes; None if that is in use and may come free."""
        try:
            return self._cache.evictions(size, is_spare=self._is_spare)
        except DoesNotFit:
            if self._cache.is_pinned:
                return None
            raise

    async def _unload(self, key: Key) -> None:
        self._cache.drop(key)
        self._files.release(key)
        await self._runner.unload(*key)
        log.info("model.unloaded", model=key[0], version=key[1])
        self._changed.set()
