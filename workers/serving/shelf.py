"""Which model versions fit on the device. Pure bookkeeping of bytes: no runner, no clock.

The shelf has a budget. What is pinned (a run uses it, or it is being loaded) stays; of the rest the
least recently used leaves first. What a version takes is known when its load has ended: room is made for
what is expected, the true size is booked by :meth:`Shelf.measure`, and the budget may be passed from then until
what is in excess has left. The version is not ready, and nothing begins a run, in between.
"""

from collections.abc import Callable
from dataclasses import dataclass

from signalbox.program.errors import OutOfMemory
from signalbox.wire.messages import Residency

Key = tuple[str, int]
"""Model name and version."""


class DoesNotFit(OutOfMemory):
    """The version is too large for the device, whatever else leaves it. No job is to blame."""


@dataclass(slots=True)
class Place:
    """One version on the shelf. pins: users that need it to stay. used: rises with every use."""

    size_bytes: int
    state: str = "loading"
    error: str = ""
    pins: int = 0
    used: int = 0


class Shelf:
    """The places of one device, at most ``budget_bytes`` together."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._places: dict[Key, Place] = {}
        self._clock = 0

    def __contains__(self, key: Key) -> bool:
        place = self._places.get(key)
        return place is not None and place.state == "ready"

    @property
    def used_bytes(self) -> int:
        """Bytes of everything that is loaded or being loaded."""
        return sum(place.size_bytes for place in self._places.values())

    def evictions(self, size_bytes: int, *, is_spare: Callable[[Key], bool] = lambda _: False) -> list[Key]:
        """What must leave before ``size_bytes`` more fit: what is spare first, then the least recently used.

        Raises :class:`DoesNotFit` where it does not fit even then: the rest is pinned or the
        budget is too small.
        """
        leaving, free = self._leaving(size_bytes, is_spare)
        if free < size_bytes:
            raise DoesNotFit(
                f"The model needs {size_bytes} bytes; {max(0, free)} of {self.budget_bytes} can be"
                " made free. Raise the worker's memory budget or place fewer models on it.",
                needed=size_bytes,
                budget=self.budget_bytes,
            )
        return leaving

    @property
    def is_over(self) -> bool:
        """More is loaded than the budget has: no run may begin."""
        return self.used_bytes > self.budget_bytes

    def excess(self, *, is_spare: Callable[[Key], bool] = lambda _: False) -> list[Key]:
        """What leaves so that the budget is kept, in the order of :meth:`evictions`; all that is idle may not do."""
        return self._leaving(0, is_spare)[0]

    def _leaving(self, size_bytes: int, is_spare: Callable[[Key], bool]) -> tuple[list[Key], int]:
        """Idle versions to unload for ``size_bytes``, as far as there are any, and the bytes that are free then."""
        free = self.budget_bytes - self.used_bytes
        leaving: list[Key] = []
        for key in sorted(self.idle(), key=lambda key: (not is_spare(key), self._places[key].used)):
            if free >= size_bytes:
                break
            free += self._places[key].size_bytes
            leaving.append(key)
        return leaving, free

    def reserve(self, key: Key, size_bytes: int) -> None:
        """A load begins; its place is pinned until :meth:`settle` or :meth:`fail`."""
        self._clock += 1
        self._places[key] = Place(size_bytes, pins=1, used=self._clock)

    def measure(self, key: Key, size_bytes: int) -> None:
        """The load has ended well and takes ``size_bytes``: book that, which may pass the budget.

        Harmless after :meth:`clear`.
        """
        place = self._places.get(key)
        if place is not None:
            place.size_bytes = size_bytes

    def settle(self, key: Key) -> None:
        """What was loaded may be used. Harmless after :meth:`clear`."""
        place = self._places.get(key)
        if place is not None and place.state == "loading":
            place.state = "ready"
            place.pins -= 1

    def crowd(self, key: Key) -> None:
        """It does not fit beside what is here, and nothing leaves for it before somebody needs it."""
        if key not in self._places:
            self._places[key] = Place(0, state="crowded")

    def uncrowd(self) -> None:
        """What did not fit may fit by now."""
        for key in [key for key, place in self._places.items() if place.state == "crowded"]:
            del self._places[key]

    def fail(self, key: Key, error: str) -> None:
        """The load has failed; the reason is kept until the next try, the bytes are free."""
        self._clock += 1
        self._places[key] = Place(0, state="failed", error=error, used=self._clock)

    def drop(self, key: Key) -> None:
        """It is no longer there."""
        self._places.pop(key, None)

    def clear(self) -> None:
        """The runner is gone and all with it. Why loads failed is still known."""
        self._places = {k: place for k, place in self._places.items() if place.state == "failed"}

    def pin(self, key: Key) -> None:
        """A run begins on a ready version. It is now the most recently used."""
        self._clock += 1
        place = self._places[key]
        place.pins += 1
        place.used = self._clock

    def unpin(self, key: Key) -> None:
        """A run has ended. Harmless after :meth:`clear`, also where the version is being loaded again."""
        place = self._places.get(key)
        if place is not None and place.state == "ready" and place.pins:
            place.pins -= 1

    @property
    def is_pinned(self) -> bool:
        """Something is in use, so room may come."""
        return any(place.pins for place in self._places.values())

    def idle(self) -> list[Key]:
        """Versions that are ready and not in use."""
        return list(filter(self.is_idle, self._places))

    def is_idle(self, key: Key) -> bool:
        """It is ready and not in use."""
        place = self._places.get(key)
        return place is not None and place.state == "ready" and not place.pins

    def state(self, key: Key) -> str:
        """As presence tells it, empty where nothing is known of the version."""
        place = self._places.get(key)
        return place.state if place is not None else ""

    def failure(self, key: Key) -> str:
        """Why the last load failed, empty if it did not."""
        place = self._places.get(key)
        return place.error if place is not None else ""

    def failures(self) -> list[Key]:
        """Versions whose last load failed."""
        return [key for key, place in self._places.items() if place.state == "failed"]

    def size_bytes(self, key: Key) -> int:
        """Bytes a version takes here, 0 where it is not."""
        place = self._places.get(key)
        return place.size_bytes if place is not None else 0

    def residencies(
        self, *, is_spare: Callable[[Key], bool] = lambda _: False, max_rows: Callable[[Key], int] = lambda _: 0
    ) -> tuple[Residency, ...]:
        """What the presence document tells, in order of name and version."""
        return tuple(
            Residency(
                model=key[0],
                version=key[1],
                size_bytes=place.size_bytes,
                error=place.error,
                state="spare" if place.state == "ready" and is_spare(key) else place.state,
                max_rows=max_rows(key),
            )
            for key, place in sorted(self._places.items())
        )
