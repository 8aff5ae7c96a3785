"""Decides which version a request without one gets, while another is made ready. Pure: every program gets the same.

The console publishes what requests *shall* get (``default_version`` and ``labels`` of a model's document). What they
*get* is one durable record a model (:class:`signalbox.wire.modeldocs.Serving`), which gateways move from the old
version to the new one by compare-and-set: when the new one is ready on every device that serves the model, or at once
where waiting saves no caller a load. Since the record moves towards one publication only, and a gateway that knows
an older one never writes it, requests never go back and forth. See ADR 0166.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from signalbox.wire.modeldocs import Model, Serving
from signalbox.wire.placement import homes_of
from signalbox.wire.splits import gets_candidate
from signalbox.wire.workerdocs import Worker

DEFAULT: Final = ""
"""The alias of requests without version and label."""
RESIDENT: Final = frozenset({"ready", "spare"})
_SETTLED: Final = RESIDENT | {"crowded"}
_TRIED: Final = _SETTLED | {"loading", "fetching"}


class MoveDecision(Enum):
    """Whether requests move to a version. ``UNSERVED``: no worker serves the model just now, so it is not known."""

    MOVE = "move"
    WAIT = "wait"
    UNSERVED = "unserved"


def wanted(model: Model) -> dict[str, int]:
    """Alias -> version, as the console published it. Aliases: :data:`DEFAULT` and the labels."""
    aliases = dict(model.labels)
    default = model.default_version
    if default is None:
        default = max((version.version for version in model.versions), default=None)
    if default is not None:
        aliases[DEFAULT] = default
    return aliases


def served(model: Model, serving: Serving | None) -> dict[str, int]:
    """Alias -> version, as requests get it now. What may no longer serve, or was never recorded, is as wanted."""
    return {alias: _now(model, serving, alias, new) for alias, new in wanted(model).items()}


def resolve(model: Model, serving: Serving | None, alias: str) -> int | None:
    """The version that requests by ``alias`` get now; None for an alias that the model has not."""
    if alias == DEFAULT:
        new = model.default_version
        if new is None:
            new = wanted(model).get(DEFAULT)
    else:
        new = model.labels.get(alias)
    return None if new is None else _now(model, serving, alias, new)


def choose(model: Model, serving: Serving | None, alias: str, key_id: str, headers: Mapping[str, str]) -> int | None:
    """The version that one request by ``alias`` gets: where that is split, it is on one side (:mod:`.splits`).

    A weight counts while the record says that the candidate is ready; else all get what the alias names.
    """
    if model.splits and serving is not None:
        split = next((one for one in model.splits if one.target == alias), None)
        is_counted = split is not None and split.candidate in serving.candidates
        if split is not None and is_counted and gets_candidate(split, model.name, key_id, headers):
            return split.candidate
    return resolve(model, serving, alias)


def targets(model: Model, serving: Serving | None) -> list[int]:
    """Versions worth having in memory: those that requests shall get, the default one first, then those they get, then
    candidates.

    A version whose load has failed comes last: a worker that starts anew serves first what is known to work.
    """
    order: list[int] = []
    for aliases in (wanted(model), served(model, serving)):
        labelled = {version for alias, version in aliases.items() if alias != DEFAULT}
        order += [aliases[DEFAULT]] if DEFAULT in aliases else []
        order += sorted(labelled, reverse=True)
    order += _candidates(model)
    known = {version.version for version in model.versions}
    failed = serving.failed if serving is not None else ()
    found = [version for version in dict.fromkeys(order) if version in known]
    return sorted(found, key=lambda version: version in failed)


def is_settled(model: Model, serving: Serving | None) -> bool:
    """Whether requests get what they shall get."""
    return served(model, serving) == wanted(model)


def decide(
    model: Model, publication: int, serving: Serving | None, workers: Iterable[Worker], *, is_deserted: bool = False
) -> tuple[Serving | None, bool]:
    """The record to write now, and whether a move only waits for a worker to serve the model.

    publication: revision of ``model``. The record is None for a caller that knows an older publication than the one
    decided upon. is_deserted: no worker has served the model for so long that the move waits no more.
    """
    if serving is not None and _is_older(model, publication, serving):
        return None, False
    present = [worker for worker in workers if worker.state != "draining"]
    before, after = served(model, serving), wanted(model)
    holders = list(_holders(model, present))
    known = {state for held in holders for state in held.items()}
    was_failed = serving.failed if serving is not None and serving.publication == publication else ()
    kept = {
        new for alias, new in after.items() if new in was_failed and not _is_tried_again(before[alias], new, holders)
    }
    failed = {v for v in after.values() if v in kept or (v, "failed") in known}
    is_unserved = False
    for alias, new in after.items():
        old = before[alias]
        if old == new:
            continue
        decision = _decision(model, old, new, holders, has_failed=new in failed)
        is_unserved |= decision is MoveDecision.UNSERVED
        if decision is MoveDecision.MOVE or (decision is MoveDecision.UNSERVED and is_deserted):
            before[alias] = new
    moving = {new for alias, new in after.items() if before[alias] != new}
    return Serving(
        publication=publication,
        published_at=model.updated_at,
        default=before.pop(DEFAULT, None),
        labels=before,
        failed=tuple(sorted(failed & moving)),
        candidates=_ready_candidates(model, serving, holders),
    ), is_unserved


def _now(model: Model, serving: Serving | None, alias: str, new: int) -> int:
    if serving is None:
        return new
    if new in serving.candidates:
        return new  # a candidate that was promoted: it is ready, and its callers stay with it
    old = serving.default if alias == DEFAULT else serving.labels.get(alias)
    if old is None or old == new or all(version.version != old for version in model.versions):
        return new
    return old


def _candidates(model: Model) -> list[int]:
    """Those that some requests shall get, or that are run in the shadow of those that requests get."""
    known = {version.version for version in model.versions}
    used = (one for one in model.splits if one.weight > 0 or one.shadow > 0)
    return sorted({one.candidate for one in used if one.candidate in known})


def _ready_candidates(model: Model, serving: Serving | None, holders: list[Mapping[int, str]]) -> tuple[int, ...]:
    """Those that are ready wherever the model is served; while it is served nowhere, those that were."""
    if not holders:
        before = serving.candidates if serving is not None else ()
        return tuple(one for one in _candidates(model) if one in before)
    return tuple(one for one in _candidates(model) if all(held.get(one) in RESIDENT for held in holders))


def _is_older(model: Model, publication: int, serving: Serving) -> bool:
    """By revision and by time: a stream that was lost begins with low revisions again, a clock may be set back."""
    return publication < serving.publication and model.updated_at < serving.published_at


def _holders(model: Model, workers: Iterable[Worker]) -> Iterator[Mapping[int, str]]:
    """Version -> state on each device that serves the model: one it is placed on, and whose lease a worker holds."""
    present = list(workers)
    homes = homes_of(model, present)
    for worker in present:
        if worker.token and worker.device.id in homes:
            yield {r.version: r.state for r in worker.models if r.model == model.name}


def _is_tried_again(old: int, new: int, holders: list[Mapping[int, str]]) -> bool:
    """Whether a failed load counts no more: each holder has tried again, and the version that works is in memory.

    A holder that reports nothing of ``new`` may be the one that failed, started anew.
    """
    is_old_here = any(held.get(old) in RESIDENT for held in holders)
    return is_old_here and all(held.get(new) in _TRIED for held in holders)


def _decision(model: Model, old: int, new: int, holders: list[Mapping[int, str]], *, has_failed: bool) -> MoveDecision:
    """Whether requests move from ``old`` to ``new``."""
    if not model.is_enabled or not model.replicas:
        return MoveDecision.MOVE  # no request is served by either
    if has_failed:  # only what is ready takes the place of what works
        is_ready = bool(holders) and all(held.get(new) in RESIDENT for held in holders)
        return MoveDecision.MOVE if is_ready else MoveDecision.WAIT
    if not holders:
        return MoveDecision.UNSERVED
    if not any(held.get(old) in RESIDENT for held in holders):
        return MoveDecision.MOVE  # whichever version they get, the next requests pay its load
    # Where there is neither, callers pay a load whichever version they get.
    waited = [held for held in holders if held.get(old) in RESIDENT or new in held]
    is_settled_everywhere = all(held.get(new) in _SETTLED for held in waited)
    return MoveDecision.MOVE if is_settled_everywhere else MoveDecision.WAIT
