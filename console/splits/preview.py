"""What an act on a model's default, a label or a split would move: who gets another version, and what differs."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from django.utils import timezone

from console.catalog import policy
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.targets import require_label, require_unsplit, servable
from console.database import one_of
from console.feed.running import running
from console.rollups import reading
from signalbox.program.errors import InvalidRequest

DEFAULT: Final = "default"
LABEL: Final = "label"
SPLIT: Final = "split"
PROMOTE: Final = "promote"
ROLL_BACK: Final = "roll-back"
_ANY: Final = -1


class Move(NamedTuple):
    """Some callers. old, new: versions they get before and after; None = none, and they are refused."""

    who: str
    old: int | None
    new: int | None


class Difference(NamedTuple):
    """How a signature of the new version differs. is_breaking: calls that work today may be refused or misread."""

    text: str
    is_breaking: bool


class Preview(NamedTuple):
    """new: the version that callers get, None where a label goes. calls: of the old versions in the last hour.

    cold: what is ahead of the first answer, empty where the version is in memory or nobody moves.
    """

    moves: list[Move]
    new: int | None
    differences: list[Difference]
    cold: str
    calls: int

    @property
    def is_breaking(self) -> bool:
        """Whether any difference is."""
        return any(one.is_breaking for one in self.differences)

    @property
    def is_change(self) -> bool:
        """Whether somebody who gets a version gets another one, or none."""
        return any(one.old is not None and one.old != one.new for one in self.moves)


def of_default(model: ServedModel, number: int | None) -> Preview:
    """Of another default version; None: always the highest. Raises as the act would."""
    require_unsplit(model, "")
    if number is not None:
        servable(model, number)
    new = number if number is not None else _highest(model)
    return _preview(model, [Move(_callers(""), model.serving_version, new)])


def of_label(model: ServedModel, label: str, number: int | None) -> Preview:
    """Of a label that is set, moved or, None, taken away. Raises as the act would."""
    require_label(label)
    require_unsplit(model, label)
    if number is not None:
        servable(model, number)
    existing = model.labels.select_related("version").filter(name=label).first()
    old = existing.version.number if existing is not None else None
    return _preview(model, [Move(_callers(label), old, number)])


def of_share(model: ServedModel, target: str, candidate: int, weight: float) -> Preview:
    """Of a split that begins, or gets another weight. Raises as the act would."""
    if not 0 <= weight <= 1:
        raise InvalidRequest("percent: 0 to 100.")
    servable(model, candidate)
    who = _callers(target)
    base: int | None
    split = model.splits.filter(target=target).first()
    if split is not None:
        base, before = split.base, split.weight
    elif target:
        label = one_of(model.labels.select_related("version").filter(name=target), f"There is no label {target!r}.")
        base, before = label.version.number, 0.0
    else:
        base, before = model.serving_version, 0.0
    parts = [
        (abs(weight - before), *((base, candidate) if weight > before else (candidate, base))),
        (min(weight, before), candidate, candidate),
        (1 - max(weight, before), base, base),
    ]
    moves = [Move(f"{who}: {100 * part:.4g} % of the callers", old, new) for part, old, new in parts if part > 0]
    return _preview(model, moves)


def of_split(model: ServedModel, target: str, *, is_promotion: bool) -> Preview:
    """Of the end of a split: all get the candidate, or nobody does. Raises :class:`NotFound`."""
    missing = f"No split of {f'label {target}' if target else 'the default'} of {model.name} runs."
    split = one_of(model.splits.filter(target=target), missing)
    new = split.candidate if is_promotion else split.base
    who = _callers(target)
    weight = 0.0 if split.halted_at else split.weight
    part = f"{100 * weight:.4g} % of the callers"
    rest = f"the other {100 - 100 * weight:.4g} %" if weight else "all callers"
    moves = [Move(f"{who}: {part}", split.candidate, new)] if weight else []
    return _preview(model, [*moves, Move(f"{who}: {rest}", split.base, new)])


def _callers(target: str) -> str:
    return f"Requests by label {target}" if target else "Requests without a version"


def _preview(model: ServedModel, moves: list[Move]) -> Preview:
    new = moves[0].new
    moving = [one for one in moves if one.old != one.new]
    versions = {one.number: one for one in model.versions.all()}
    differences: dict[str, Difference] = {}
    for move in moving:
        old = versions.get(move.old) if move.old is not None else None
        if old is not None and new in versions:
            differences |= {one.text: one for one in compare(old, versions[new])}
    found = sorted(differences.values(), key=lambda one: not one.is_breaking)
    return Preview(moves, new, found, _cold(model.name, new) if moving else "", _calls(model.name, moving))


def _highest(model: ServedModel) -> int | None:
    ready = {one.number: one.first_ready_at is not None for one in model.versions.all() if one.may_serve}
    labelled = {label.version.number for label in model.labels.select_related("version")}
    return max(
        (number for number in {*policy.selected(model.policy, ready), *labelled} if number in ready), default=None
    )


def _calls(name: str, moving: list[Move]) -> int:
    old = {one.old for one in moving}
    since = timezone.now() - timedelta(hours=1)
    return sum(one.jobs for one in reading.versions(name, since) if one.version in old)


def _cold(name: str, number: int | None) -> str:
    """Why the first answers may be late."""
    if number is None:
        return ""
    feed = running.feed
    if feed is None or feed.is_blind:
        return "Whether a device has it in memory is not known now."
    workers = feed.view.queues.workers()
    states = {one.state for worker in workers for one in worker.models if (one.model, one.version) == (name, number)}
    if "ready" in states:
        return ""
    if "failed" in states:
        return f"Its last load failed. Until version {number} is ready, requests get the version of now."
    return (
        f"No device has version {number} in memory: it is loaded first, and until it is ready requests get the version"
        " of now."
    )


def compare(old: ModelVersion, new: ModelVersion) -> Iterator[Difference]:
    """How the signatures that callers may name differ, for callers of the old version."""
    ours, theirs = old.callable_signatures, new.callable_signatures
    for name in sorted(ours.keys() - theirs.keys()):
        yield Difference(f"Signature {name} is gone.", is_breaking=True)
    for name in sorted(theirs.keys() - ours.keys()):
        yield Difference(f"Signature {name} is new.", is_breaking=False)
    for name in sorted(ours.keys() & theirs.keys()):
        optional = theirs[name].get("defaults") or {}
        yield from _sides(name, "input", ours[name]["inputs"], theirs[name]["inputs"], optional)
        yield from _sides(name, "output", ours[name]["outputs"], theirs[name]["outputs"], {})


def _sides(
    signature: str, side: str, old: Mapping[str, Any], new: Mapping[str, Any], optional: Mapping[str, Any]
) -> Iterator[Difference]:
    where = f"of signature {signature}"
    for name in sorted(old.keys() - new.keys()):
        yield Difference(f"The {side} {name} {where} is gone.", is_breaking=True)
    for name in sorted(new.keys() - old.keys()):
        is_asked = side == "input" and name not in optional
        words = "must be given now" if is_asked else "is new"
        yield Difference(f"The {side} {name} {where} {words}.", is_breaking=is_asked)
    for name in sorted(old.keys() & new.keys()):
        was, now = old[name], new[name]
        if (was["dtype"], was.get("kind", "")) != (now["dtype"], now.get("kind", "")):
            yield Difference(f"The {side} {name} {where} is {_kind(now)} and no longer {_kind(was)}.", is_breaking=True)
        elif was["shape"] != now["shape"]:
            # What is asked for may become wider, what is given narrower.
            given = (now["shape"], was["shape"]) if side == "input" else (was["shape"], now["shape"])
            words = f"has the shape {_shown(now['shape'])} and no longer {_shown(was['shape'])}"
            yield Difference(f"The {side} {name} {where} {words}.", is_breaking=not _is_within(*given))


def _kind(spec: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (spec.get("kind", ""), spec["dtype"])))


def _shown(shape: list[int] | None) -> str:
    if shape is None:
        return "of any rank"
    return "[" + ", ".join("?" if size == _ANY else str(size) for size in shape) + "]"


def _is_within(wide: list[int] | None, narrow: list[int] | None) -> bool:
    """Whether every tensor of the second shape has the first."""
    if wide is None:
        return True
    if narrow is None or len(wide) != len(narrow):
        return False
    return all(one in (_ANY, other) for one, other in zip(wide, narrow, strict=True))
