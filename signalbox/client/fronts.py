"""The fronts of a client: looked up by a timer, taken in turn, passed over while they are away."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from threading import Lock
from typing import Final, Literal
from urllib.parse import urlsplit

from signalbox.client.exchange import Resolve, Steps, Target
from signalbox.program.errors import Unavailable

Balance = Literal["round_robin", "least_outstanding"]
REFRESH_S: Final = 30.0
"""How old a list of addresses may be."""
REST_S: Final = 5.0
"""How long a front that failed gets nothing while there are others."""
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(eq=False)
class Front:
    """One front. outstanding: requests that it has not answered. turn: of its last choice, counted. rests_until: in
    seconds of the clock.
    """

    target: Target
    outstanding: int = 0
    turn: int = 0
    rests_until: float = 0.0


class Fronts:
    """Chooses fronts. urls: each an address, or a name with one or more. Threads may share it.

    clock: seconds that only grow.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        balance: Balance = "round_robin",
        refresh_s: float = REFRESH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._origins = [_Origin(url) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self._origins:
            raise ValueError("a client needs the URL of a front")
        self._is_by_load = balance == "least_outstanding"
        self._refresh_s = refresh_s
        self._clock = clock
        self._lock = Lock()
        self._fronts: list[Front] = []
        self._due = clock()
        self._turn = 0

    def choose(self, tried: Collection[Front] = ()) -> Steps[Front]:
        """The front whose turn it is, by preference one that was not ``tried`` and does not rest; it is outstanding
        until :meth:`release`. Raises :class:`Unavailable` where no name resolves.
        """
        if self._take_refresh():
            yield from self._refresh()
        with self._lock:
            now = self._clock()
            fresh = [one for one in self._fronts if one not in tried]
            able = [one for one in fresh if one.rests_until <= now] or fresh or self._fronts
            if not able:
                raise Unavailable("The fronts' addresses are not known yet.")
            chosen = min(able, key=lambda one: (one.outstanding if self._is_by_load else 0, one.turn))
            self._turn += 1
            chosen.turn = self._turn
            chosen.outstanding += 1
            return chosen

    def release(self, front: Front, *, rest_s: float = 0.0) -> None:
        """The front has answered, or failed and is to be passed over for so long."""
        with self._lock:
            front.outstanding -= 1
            front.rests_until = self._clock() + rest_s if rest_s else 0.0

    def has_more(self, tried: Collection[Front]) -> bool:
        """Whether a front is neither ``tried`` nor at rest."""
        now = self._clock()
        with self._lock:
            return any(one not in tried and one.rests_until <= now for one in self._fronts)

    def _take_refresh(self) -> bool:
        """Whether the caller has to look the names up; others go on with the list there is meanwhile."""
        with self._lock:
            now = self._clock()
            if now < self._due and self._fronts:
                return False
            self._due = now + self._refresh_s
            return True

    def _refresh(self) -> Steps[None]:
        """Look all names up. One that does not resolve keeps the addresses it had."""
        failure: Unavailable | None = None
        for origin in self._origins:
            if origin.is_name:
                try:
                    addresses = yield Resolve(origin.host, origin.port)
                except Unavailable as error:
                    failure = error
                else:
                    origin.addresses = list(dict.fromkeys(addresses))
        targets = {target: None for origin in self._origins for target in origin.targets()}
        if not targets and failure is not None:
            raise failure
        with self._lock:
            known = {one.target: one for one in self._fronts}
            self._fronts = [known.get(target) or Front(target) for target in targets]


class _Origin:
    """A URL as given, and the addresses of its host."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"not an http(s) URL of a front: {url!r}")
        self.host = parts.hostname
        self.port = parts.port or _PORTS[parts.scheme]
        self._scheme = parts.scheme
        self._path = parts.path.rstrip("/")
        self._authority = parts.netloc.rpartition("@")[2]
        try:
            ip_address(self.host)
            self.is_name = False
        except ValueError:
            self.is_name = True
        self.addresses: list[str] = [] if self.is_name else [self.host]

    def targets(self) -> list[Target]:
        return [Target(self._url(address), self._authority, self.host) for address in self.addresses]

    def _url(self, address: str) -> str:
        host = f"[{address}]" if ":" in address else address
        return f"{self._scheme}://{host}:{self.port}{self._path}"
