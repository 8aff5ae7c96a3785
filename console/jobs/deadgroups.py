"""Dead letters by error: what is alike is one group. Read from NATS at each request, the oldest first, within a bound.

A group is acted on up to the newest letter that was shown of it: letters that come meanwhile are left alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from console.accounts import scope
from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.asking import ask
from console.audit.acts import Target, act, check, preparing
from console.jobs.groups import fingerprint
from console.outbox import services as outbox
from console.outbox.models import OutboxEntry, redrive_body
from signalbox.bus.client import Bus
from signalbox.jobs import deadletters
from signalbox.jobs.deadletters import Letter
from signalbox.program.errors import NotFound
from signalbox.wire.access import is_among
from signalbox.wire.names import Stream

MOST_READ: Final = 1000
"""Letters that one request looks at."""
MOST_ACTED: Final = 200
"""Letters that one request redrives or discards."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes of their inputs that it reads over."""
_REPORT_WITHIN_S: Final = 2.0
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
    attempt: int
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
            notice.attempt if notice is not None else 0,
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


@dataclass(frozen=True)
class GroupAct:
    """What became of an act on many letters. done: NATS has them. later: they wait in the outbox. left: not asked for,
    above :data:`MOST_ACTED`. refused: how many, by reason.
    """

    asked: int
    done: int
    later: int
    left: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def read(which: Which, only: Sequence[str] = ()) -> Read:
    """The letters that were asked for. only: of these models, names or beginnings of names; empty: of all.

    Raises :class:`Unavailable`.
    """
    found = ask(_WHAT, lambda bus: _read(bus, which))
    return found._replace(letters=[one for one in found.letters if is_among(only, one.model)]) if only else found


def _model_of(which: str) -> str | None:
    """The model of what :class:`Which` calls so; None where it is not of one model."""
    name = which.partition(" ")[0].partition(":")[0]
    return name if name not in {"", "all"} else None


scope.belongs(_WHAT, _model_of)


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


def redrive(actor: Actor, which: Which, *, with_version: int = 0, reason: str = "") -> GroupAct:
    """Run those again that were not yet, at most :data:`MOST_ACTED` of them, the oldest first.

    with_version: of the model; letters whose input does not fit it are refused. Raises :class:`NotFound` for none.
    """
    more = {"with_version": with_version} if with_version else {}
    return _act(actor, Act.JOBS_REDRIVE, which, more, reason)


def discard(actor: Actor, which: Which, *, reason: str = "") -> GroupAct:
    """Remove them with their inputs for good, at most :data:`MOST_ACTED`, the oldest first. Raises as above."""
    return _act(actor, Act.JOBS_DISCARD, which, {}, reason)


def _act(actor: Actor, what: Act, which: Which, more: dict[str, int], reason: str) -> GroupAct:
    target = Target(_WHAT, str(which))
    asked: dict[str, Any] = {**which._asdict(), **more}
    check(actor, what, target, asked=asked, reason=reason)
    is_redrive = what is Act.JOBS_REDRIVE
    with preparing(actor, what, target, asked=asked, reason=reason):
        found = [one for one in read(which).letters if not (is_redrive and one.redriven)]
        if not found:
            raise NotFound("There are no such dead letters, or no longer." if not is_redrive else _NONE_WAITING)
    chosen = found[:MOST_ACTED]
    with act(actor, what, target, asked=asked, reason=reason) as change:
        change.after = {**asked, "letters": len(chosen), "jobs": [one.id for one in chosen]}
        kind = OutboxEntry.REDRIVE if is_redrive else OutboxEntry.DISCARD
        body = redrive_body("", more.get("with_version", 0))
        pks = outbox.post_all(OutboxEntry(kind=kind, key=one.id, body=body) for one in chosen)
    return _reported(pks, len(found) - len(chosen))


_NONE_WAITING: Final = "There are no such dead letters that were not redriven yet."


def _reported(pks: list[int], left: int) -> GroupAct:
    entries = outbox.wait_all_settled(pks, timeout_s=_REPORT_WITHIN_S)
    later = sum(entry.published_at is None for entry in entries)
    refused = Counter(entry.last_error for entry in entries if entry.published_at is not None and entry.last_error)
    return GroupAct(len(pks), len(pks) - later - refused.total(), later, left, dict(refused))


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
