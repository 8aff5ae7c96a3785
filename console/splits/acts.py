"""Acts on splits: start one or change its weight, promote its candidate, roll it back."""

from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor, system_actor
from console.audit.acts import Target, act
from console.catalog.lookup import locked
from console.catalog.models import ServedModel, VersionSplit
from console.catalog.publishing import publish, publish_fitting
from console.catalog.targets import servable
from signalbox.program.errors import Conflict, InvalidRequest, NotFound
from signalbox.wire.splits import HEADER_NAME, canonical

_CONTROLLER: Final = system_actor("canary")


def set_split(
    actor: Actor,
    name: str,
    target: str,
    candidate: int,
    weight: float,
    header: str = "",
    *,
    shadow: float | None = None,
    tolerance: float | None = None,
    reason: str = "",
) -> VersionSplit:
    """Give part of the requests of a label, or of the default (empty ``target``), the candidate; or another part.

    weight: above 0, at most 1; 0 where there is a ``shadow``. header: callers stay on their side by its value, and by
    their key where a request has none; empty: by their key. shadow: part of the other version's batches, which
    workers run on the candidate too and compare within ``tolerance``; callers get nothing of it. None = both as before.
    While the split runs, requests without a version get the default of now as their other version.
    Raises :class:`InvalidRequest`, :class:`NotFound` for an unknown label or version, and :class:`Conflict` for a
    version that may not serve or is the other one, and where another split of the target runs.
    """
    asked: dict[str, Any] = {"split": target or "default", "candidate": candidate, "weight": weight, "header": header}
    asked |= {name: value for name, value in (("shadow", shadow), ("tolerance", tolerance)) if value is not None}
    with act(actor, Act.MODELS_ROLLOUT, Target("model", name), asked=asked, reason=reason) as change:
        if header and not HEADER_NAME.fullmatch(header):
            raise InvalidRequest("header: is the name of a header: letters, digits and '-', at most 64.")
        model = locked(name)
        servable(model, candidate)
        split = model.splits.filter(target=target).first()
        if split is None:
            split = _begun(actor, model, target, candidate, header)
        else:
            _require_same(split, candidate, header)
            change.before = {"weight": split.weight}
            if split.shadow:
                change.before |= {"shadow": split.shadow, "tolerance": split.tolerance}
        _set_shares(split, weight, split.shadow if shadow is None else shadow, tolerance or split.tolerance)
        split.save()
        change.after = {**asked, "header": split.header, "base": split.base}
        publish_fitting(model, change)
    return split


def promote(actor: Actor, name: str, target: str, *, reason: str = "") -> ServedModel:
    """Let all requests of the target get the candidate: the split ends. Raises as :func:`set_split`."""
    asked = _asked("promote", target)
    with act(actor, Act.MODELS_ROLLOUT, Target("model", name), asked=asked, reason=reason) as change:
        model = locked(name)
        split = _running(model, target)
        _require_unhalted(split)
        version = servable(model, split.candidate)
        change.before = {"version": split.base, "weight": split.weight}
        change.after["version"] = split.candidate
        split.delete()
        if target:
            model.labels.filter(name=target).update(version=version)
        else:
            model.default_version = split.candidate
        publish(model, change)
    return model


def roll_back(actor: Actor, name: str, target: str, *, reason: str = "") -> ServedModel:
    """Let all requests of the target get the version it names: the split ends, one that is halted too."""
    asked = _asked("roll back", target)
    with act(actor, Act.MODELS_ROLLOUT, Target("model", name), asked=asked, reason=reason) as change:
        model = locked(name)
        split = _running(model, target)
        change.before = {"candidate": split.candidate, "weight": split.weight, "halted": split.halted}
        change.after["version"] = split.base
        split.delete()
        publish(model, change)
    return model


def halt(name: str, target: str, started_at: datetime, why: str, evidence: dict[str, Any]) -> bool:
    """Roll a split back by itself: nobody gets the candidate any more, and it stays to be seen until :func:`roll_back`.

    Idempotent. False where that split does not run any more.
    """
    running = VersionSplit.objects.filter(model__name=name, target=target, started_at=started_at, halted_at=None)
    if not running.exists():
        return False
    asked = _asked("roll back", target)
    with act(_CONTROLLER, Act.MODELS_ROLLOUT, Target("model", name), asked=asked, reason=why) as change:
        model = locked(name)
        split = running.first()
        if split is None:
            raise Conflict("The split has ended meanwhile.")
        change.before = {"candidate": split.candidate, "weight": split.weight}
        change.after = {**asked, "version": split.base, "evidence": evidence}
        split.halted_at, split.halted, split.evidence = timezone.now(), why, evidence
        split.save()
        publish(model, change)
    return True


def note_shadow(name: str, target: str, since: datetime, found: dict[str, Any], differs: str) -> bool:
    """Note what workers have found of a candidate in shadow, and tell it where it differs. Idempotent.

    found: figures to keep, by worker and boot. differs: why the outputs are not alike, empty = nothing says so. False
    where that shadow does not run any more.
    """
    with transaction.atomic():
        split = (
            VersionSplit.objects.select_for_update()
            .filter(model__name=name, target=target, shadow_since=since, halted_at=None)
            .first()
        )
        if split is None:
            return False
        split.shadowed = found
        is_news = bool(differs) and not split.differs
        if not is_news:
            split.save(update_fields=["shadowed"])
            return True
    with act(
        _CONTROLLER, Act.MODELS_ROLLOUT, Target("model", name), asked=_asked("report", target), reason=differs
    ) as c:
        model = locked(name)
        split = model.splits.filter(target=target, shadow_since=since, differs="").first()
        if split is None:
            raise Conflict("The split has ended meanwhile.")
        split.shadowed, split.differs = found, differs
        split.save(update_fields=["shadowed", "differs"])
        c.after = {"differs": differs}
        publish(model, c)
    return True


def _set_shares(split: VersionSplit, weight: float, shadow: float, tolerance: float) -> None:
    """Raises :class:`InvalidRequest`; what is no number is refused too."""
    if not 0 <= weight <= 1 or not (weight or shadow):
        raise InvalidRequest("weight: is above 0 and at most 1; 0 where the candidate is run in shadow alone.")
    if not 0 <= shadow <= 1:
        raise InvalidRequest("shadow: is at least 0 and at most 1.")
    if not 0 < tolerance <= 1:
        raise InvalidRequest("tolerance: is above 0 and at most 1.")
    if (shadow > 0, tolerance) != (split.shadow > 0, split.tolerance):  # what was found answers another question
        split.shadow_since, split.shadowed, split.differs = timezone.now() if shadow else None, {}, ""
    split.weight, split.shadow, split.tolerance = weight, shadow, tolerance


def _begun(actor: Actor, model: ServedModel, target: str, candidate: int, header: str) -> VersionSplit:
    if target:
        label = model.labels.filter(name=target).select_related("version").first()
        if label is None:
            raise NotFound(f"{model.name} has no label {target!r}.")
        base = label.version.number
    elif (default := model.serving_version) is not None:
        base = model.default_version = default  # or a version that is added meanwhile would take its place
    else:
        raise Conflict(f"{model.name} serves no version that requests could be split from.")
    if base == candidate:
        raise Conflict(
            f"Its requests get version {candidate} already. Choose another candidate, or move it back first."
        )
    return VersionSplit(
        model=model, target=target, base=base, candidate=candidate, header=canonical(header), started_by=actor.name
    )


def _require_same(split: VersionSplit, candidate: int, header: str) -> None:
    _require_unhalted(split)
    if (split.candidate, split.header) != (candidate, canonical(header)):
        raise Conflict(
            f"A split of {split.what} gives part of its requests version {split.candidate}, by"
            f" {f'the header {split.header}' if split.header else 'their key'}. Only its weight can be changed; promote"
            " it, or roll it back, before another one begins."
        )


def _require_unhalted(split: VersionSplit) -> None:
    if split.halted_at is not None:
        raise Conflict(f"The split of {split.what} was rolled back: {split.halted} End it, and start another one.")


def _running(model: ServedModel, target: str) -> VersionSplit:
    split = model.splits.filter(target=target).first()
    if split is None:
        raise NotFound(f"{f'Label {target}' if target else 'The default'} of {model.name} is not split.")
    return split


def _asked(what: str, target: str) -> dict[str, Any]:
    return {what: target or "default"}
