"""What is wanted of each model and class at a moment, given what was wanted before. Pure; time is passed in."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from console.board.capacity import Devices
from console.scaling.rules import BUSY, NO_CAPACITY, Load, Recommendation, Wants, Windows, classes, recommended, wants
from signalbox.wire.scaling import ClassScale, ModelScale, Scale, Scaling

_PARTS: Final = 1000
"""Of a device, in which the work of one is counted."""
_AS_SET: Final = Scaling()


class Decision(NamedTuple):
    """What to do. replicas: of the models that shall have others than they have."""

    replicas: Mapping[str, int]
    scale: Scale


class Scaler:
    """Remembers what was recommended lately. last: what was wanted last, by whichever controller. now: as in decide."""

    def __init__(self, last: Scale, now: float) -> None:
        self._last = last
        self._windows: dict[str, Windows] = {}
        self._work: dict[str, tuple[Windows, int]] = {}
        # A controller that starts anew neither ends what runs nor starts what had been ended.
        self._called = {name: now for name, one in last.models.items() if one.needed}

    def decide(
        self,
        now: float,
        scaled: Mapping[str, Scaling],
        replicas: Mapping[str, int],
        loads: Mapping[str, Load],
        devices: Devices,
    ) -> Decision:
        """scaled: models that scale by themselves. replicas: of all models that take jobs, as published. loads: of the
        models that somebody calls. now: seconds of a clock that does not go back."""
        for known in (self._windows, self._work, self._called):
            for name in known.keys() - replicas.keys():
                known.pop(name)
        changes, models, all_wants = {}, {}, []
        for name, current in replicas.items():
            scaling = scaled.get(name, _AS_SET)
            if not current or (not scaling.is_on and name not in loads):
                continue
            load = self._seen(name, loads.get(name, Load(devices=current)), now)
            wanted, reason = self._settled(name, load, scaling, current, now) if scaling.is_on else (current, "")
            one = wants(load, scaling, wanted, reason, now)
            if one.scale.needed:
                most = max(1, scaling.min, scaling.max) if scaling.is_on else current
                worked = self._worked(name, one.load_devices, scaling, now)
                one = one._replace(load_devices=min(worked, most * BUSY))  # further devices would not have it
            else:
                self._work.pop(name, None)
            all_wants.append(one)
            if scaling.is_on:
                models[name] = one.scale
            if wanted != current:
                changes[name] = wanted
        by_hand = max((count for name, count in replicas.items() if not scaled.get(name, _AS_SET).is_on), default=0)
        all_wants.append(Wants(ModelScale(wanted=by_hand, needed=by_hand)))
        self._last = Scale(classes=self._classes(all_wants, devices), models=models)
        return Decision(changes, self._last)

    def _seen(self, name: str, load: Load, now: float) -> Load:
        """The load with when the model was called last."""
        called = (self._called.get(name), load.called_at, now if load.is_open else None)
        if any(one is not None for one in called):
            self._called[name] = max(one for one in called if one is not None)
        return load._replace(called_at=self._called.get(name))

    def _settled(self, name: str, load: Load, scaling: Scaling, current: int, now: float) -> Recommendation:
        asked = recommended(load, scaling)
        up_s, down_s = scaling.up_window_s, scaling.down_window_s
        settled = self._windows.setdefault(name, Windows()).settled(
            now, current, asked.devices, up_s=up_s, down_s=down_s
        )
        least = max(1, scaling.min)
        wanted = min(max(settled, least), max(least, scaling.max))  # bounds are heeded at once
        if wanted == asked.devices:
            return asked
        window_s = up_s if asked.devices > wanted else down_s
        return Recommendation(
            wanted, f"{asked.devices} asked for ({asked.reason}), heeded after {window_s:.0f} s of it"
        )

    def _worked(self, name: str, work: float, scaling: Scaling, now: float) -> float:
        """Devices that the model has kept busy at most, within its window for shrinking."""
        if not work and name not in self._work:
            return 0.0
        windows, before = self._work.get(name, (Windows(), 0))
        parts = windows.settled(now, before, round(work * _PARTS), up_s=0.0, down_s=scaling.down_window_s)
        self._work[name] = (windows, parts)
        return parts / _PARTS

    def _classes(self, models: list[Wants], devices: Devices) -> dict[str, ClassScale]:
        """While no host is present, what is wanted stays: hosts that come find what they had. What is asked for does
        not, so that who starts hosts by it starts the first."""
        if any(devices.there.values()):
            return classes(models, devices.most, devices.actual, devices.there)
        last = self._last.classes
        asked = classes(models, {**dict.fromkeys(last, 0), **devices.most}, {})
        return {name: _hostless(last.get(name, ClassScale(wanted=0)), one) for name, one in asked.items()}


def _hostless(last: ClassScale, now: ClassScale) -> ClassScale:
    """What is wanted of a class without a host. last: before. now: as if there were as many devices as asked for."""
    is_short = now.asked > last.wanted
    reason = f"{NO_CAPACITY}: {now.asked} asked for, no host there" if is_short else "no host there"
    return replace(last, asked=now.asked, most=now.most, actual=0, reason=reason)
