"""From what waits to how many devices a model shall have: what is recommended, and what of that is heeded when. Pure.

Sources: the queue product's autoscaling (S4.P15); the stabilization windows of Kubernetes' HorizontalPodAutoscaler,
whose words these are.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from signalbox.program.words import counted
from signalbox.wire.scaling import ClassScale, ModelScale, Scaling

BUSY: Final = 0.7
"""Of its time that a device computes at most, where there may be more of them."""
_MOMENT_S: Final = 1e-6
_ROUNDING: Final = 1e-9
NO_CAPACITY: Final = "no capacity"


class Load(NamedTuple):
    """What is known of one model.

    waiting, running: jobs. oldest_s: age of the first that waits, a job or an item of a queue. run_s: of a device for
    one job, 0 = none has run. arrived_per_s: jobs. devices: it shall have now. ready: of them it is in memory on so
    many, None = all. called_at: when a job of it last came, or was there, on the clock of ``now``; None = never since
    it is watched. items: that wait in queues of which it is a service, and are no jobs yet.
    """

    waiting: int = 0
    running: int = 0
    oldest_s: float = 0.0
    run_s: float = 0.0
    arrived_per_s: float = 0.0
    devices: int = 1
    called_at: float | None = None
    ready: int | None = None
    items: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it has jobs that have not ended, or will have some."""
        return self.waiting + self.running + self.items > 0

    @property
    def waiting_words(self) -> str:
        """What waits, as a reason."""
        if not self.items:
            return counted(self.waiting, "job waits", "jobs wait")
        items = counted(self.items, "item", "items")
        jobs = f"{counted(self.waiting, 'job', 'jobs')} and " if self.waiting else ""
        return f"{jobs}{items} of queues wait{'s' if self.waiting + self.items == 1 else ''}"


class Recommendation(NamedTuple):
    """Devices, and why so many."""

    devices: int
    reason: str


def recommended(load: Load, scaling: Scaling) -> Recommendation:
    """What the load asks for at this moment, between ``min`` (at least one) and ``max``."""
    now = max(1, load.devices)
    ready = now if load.ready is None else min(now, load.ready)
    waiting = load.waiting + load.items
    asked = [
        _scaled(now, waiting / now, scaling.backlog, scaling.tolerance, load.waiting_words),
    ]
    if ready:  # a wait for devices that are started or load says nothing of how many it takes
        words = f"the oldest waits {load.oldest_s:.0f} s"
        asked.append(_scaled(ready, load.oldest_s, scaling.target_wait_s, scaling.tolerance, words))
    found = max((one for one in asked if one is not None), default=Recommendation(now, "no target is set"))
    least = max(1, scaling.min, scaling.activation if load.is_open else 0)
    most = max(least, scaling.max)
    if found.devices > most:
        return Recommendation(most, f"{found.reason}: {found.devices} asked for, at most {most}")
    if found.devices < least:
        return Recommendation(least, f"at least {least}")
    return found


def _scaled(now: int, measured: float, target: float, tolerance: float, words: str) -> Recommendation | None:
    """``ceil(now * measured / target)``, and ``now`` where that is within the tolerance. None without a target."""
    if target <= 0:
        return None
    ratio = measured / target
    if abs(ratio - 1) <= tolerance + _ROUNDING:
        return Recommendation(now, f"{words}, as wanted")
    return Recommendation(math.ceil(now * ratio), words)


class Windows:
    """What was recommended lately, for one model or class: it grows by the smallest of what was recommended within the
    window for growing, and shrinks to the largest within the one for shrinking. So no change is taken back within it.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def settled(self, now: float, current: int, devices: int, *, up_s: float, down_s: float) -> int:
        """What is heeded of a recommendation that comes ``now`` (seconds of any clock that does not go back)."""
        if not self._seen:  # a controller that starts anew takes nothing down before a window has passed
            self._seen.append((now - _MOMENT_S, current))
        self._seen.append((now, devices))
        longest = max(up_s, down_s)
        while self._seen[0][0] < now - longest:
            self._seen.popleft()
        up = min(n for at, n in self._seen if at >= now - up_s)
        down = max(n for at, n in self._seen if at >= now - down_s)
        if up > current:
            return up
        return min(down, current)


class Wants(NamedTuple):
    """One model as workers are kept for it. load_devices: devices that its jobs keep busy at this moment."""

    scale: ModelScale
    load_devices: float = 0.0


def wants(load: Load, scaling: Scaling, wanted: int, reason: str, now: float) -> Wants:
    """wanted: its devices, as they are settled. now: on the clock of ``load.called_at``."""
    is_called = load.is_open or (load.called_at is not None and now - load.called_at < scaling.zero_grace_s)
    needed = wanted if scaling.min or is_called or not scaling.is_on else 0
    if not needed:
        reason = f"no job for {scaling.zero_grace_s:.0f} s: no worker is kept for it"
    busy = load.arrived_per_s * load.run_s if needed else 0.0
    return Wants(ModelScale(wanted=wanted, needed=needed, reason=reason), busy)


def classes(
    models: Iterable[Wants],
    bounds: Mapping[str, int],
    actual: Mapping[str, int],
    devices: Mapping[str, int] | None = None,
) -> dict[str, ClassScale]:
    """How many devices of each class shall have workers: as many as the model that needs most of them, since devices
    serve many models, and as many as keeps them busy for no more than :data:`BUSY` of their time.

    bounds: most by class, in the order in which they are filled; 0 = no bound. actual: devices
    with a worker now. devices: that there are, None = as many as are asked for.
    """
    models = list(models)
    needed = max((one.scale.needed for one in models), default=0)
    busy = sum(one.load_devices for one in models)
    found = {}
    for name, most in bounds.items():
        asked = max(needed, math.ceil(busy / BUSY))
        there = devices.get(name, 0) if devices is not None else asked
        wanted = min(asked, there, most) if most else min(asked, there)
        needed, busy = max(0, needed - wanted), max(0.0, busy - wanted * BUSY)
        short = f"at most {most}" if most and wanted == most else f"{counted(there, 'device')} there"
        reason = "as asked for" if wanted == asked else f"{NO_CAPACITY}: {asked} asked for, {short}"
        found[name] = ClassScale(wanted=wanted, asked=asked, actual=actual.get(name, 0), most=most, reason=reason)
    return found
