"""Dead letters by error: what is alike is one group. Read from NATS at each request, the oldest first, within a bound.

A group is acted on up to the newest letter that was shown of it: letters that come meanwhile are left alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from console.asking import ask
from console.jobs.groups import fingerprint
from signalbox.bus.client import Bus
from signalbox.jobs import deadletters
from signalbox.jobs.deadletters import Letter
from signalbox.wire.access import is_among
from signalbox.wire.names import Stream

MOST_READ: Final = 1000
"""Letters that one request looks at."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes of their inputs that it reads over."""
_NANO: Final = 10**9
_WHAT: Final = "dead letters"


class Which(NamedTuple):
    """Which letters: of a model, a version, an error code, a fingerprint; empty = every. until: the newest, by seq."""

    model: str = ""
    version: int = 0
    error: str = ""
    group: str = ""
    until: int = 0

    def has(self, one: "Seen") -> bool:
        """Whether a letter is one of them."""
        return (
            (not self.until or one.seq <= self.until)
            and (not self.group or (self.version, self.error, self.group) == (one.version, one.error, one.group))
            and self.model in {"", one.model}
        )

    def __str__(self) -> str:
        if not self.group:
            return self.model or "all"
        return f"{self.model}:{self.version} {self.error} {self.group}"

    @property
    def words(self) -> str:
        """Which letters, for people."""
        if not self.group:
            return f"dead letters of {self.model}" if self.model else "all dead letters"
        return f"dead letters of {self.model}:{self.version} with {self.error or 'no error'}"


class Seen(NamedTuple):
    """A letter without its input. at, redriven_at: UTC seconds. redriven: the job that it was run again as."""

    id: str
    model: str
    version: int
    error: str
    message: str
    group: str
    seq: int
    at: float
    size_bytes: int
    input_is: str
    account_id: str
    redriven: str

    @classmethod
    def of(cls, letter: Letter) -> "Seen":
        """What is told of a letter."""
        notice, job = letter.notice, letter.job
        code = notice.error.code if notice is not None else ""
        message = notice.error.message if notice is not None else ""
        return cls(
            letter.id,
            letter.model,
            job.version if job is not None else 0,
            code,
            message,
            fingerprint(code, message) or "none",
            letter.seq,
            letter.at,
            letter.size_bytes,
            letter.input_is,
            job.account_id if job is not None else "",
            letter.redriven.job if letter.redriven is not None else "",
        )


class Read(NamedTuple):
    """Letters, the oldest first. is_cut: there are newer ones. kept_s: how long a letter is kept, 0 = for ever."""

    letters: list[Seen]
    is_cut: bool
    kept_s: float

    @property
    def until(self) -> int:
        """Of the newest letter."""
        return self.letters[-1].seq if self.letters else 0


@dataclass
class Group:
    """Letters of one model and version whose errors are alike. sample: the newest. waiting: not redriven yet."""

    which: Which
    sample: Seen
    first_at: float
    last_at: float
    kept_until: float | None
    count: int = 0
    waiting: int = 0
    size_bytes: int = 0


def read(which: Which, only: Sequence[str] = ()) -> Read:
    """The letters that were asked for. only: of these models, names or beginnings of names; empty: of all.

    Raises :class:`Unavailable`.
    """
    found = ask(_WHAT, lambda bus: _read(bus, which))
    return found._replace(letters=[one for one in found.letters if is_among(only, one.model)]) if only else found


def groups(found: Read) -> list[Group]:
    """By model, version and error, the largest first."""
    made: dict[Which, Group] = {}
    for one in found.letters:
        which = Which(one.model, one.version, one.error, one.group)
        kept_until = one.at + found.kept_s if found.kept_s else None
        group = made.setdefault(which, Group(which, one, one.at, one.at, kept_until))
        group.sample, group.last_at = one, one.at
        group.count += 1
        group.waiting += not one.redriven
        group.size_bytes += one.size_bytes
    for group in made.values():
        group.which = group.which._replace(until=group.sample.seq)
    return sorted(made.values(), key=lambda group: (-group.count, -group.last_at))


async def _read(bus: Bus, which: Which) -> Read:
    found: list[Seen] = []
    looked = size = 0
    next_after: int | None = 0
    while next_after is not None and looked < MOST_READ and size < _MOST_BYTES:
        page = await deadletters.page(bus, model=which.model, after=next_after, size=deadletters.MOST)
        looked += len(page.letters)
        size += sum(len(letter.body) for letter in page.letters)
        found += [seen for seen in map(Seen.of, page.letters) if which.has(seen)]
        next_after = page.after
        if which.until and page.letters and page.letters[-1].seq >= which.until:
            next_after = None
    return Read(found, next_after is not None, await kept_s(bus))


async def kept_s(bus: Bus) -> float:
    """How long a letter is kept, in seconds; 0 = for ever."""
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.DLQ}")
    return float(info["config"].get("max_age", 0)) / _NANO
