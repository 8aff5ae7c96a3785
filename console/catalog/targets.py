"""The default and the labels of a model: what one may lead to, and acts that lead it elsewhere."""

from typing import Final

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.catalog.lookup import locked, version_of
from console.catalog.models import ModelVersion, ServedModel, VersionLabel
from console.catalog.publishing import publish_fitting
from console.database import one_of
from console.feed.running import running
from signalbox.program.errors import Conflict, InvalidRequest, NotFound
from signalbox.wire.names import MODEL_NAME

MOST_LABELS: Final = 100
"""Of a model: each is in its document, which every gateway and worker reads."""
HIGHEST: Final = "the highest"
"""What the audit says of a default that is not chosen."""


def set_default(actor: Actor, name: str, number: int | None, *, reason: str = "") -> ServedModel:
    """Choose the version that requests without one get; None: always the highest."""
    asked = {"default_version": number or HIGHEST}
    with act(actor, Act.MODELS_ROLLOUT, Target("model", name), asked=asked, reason=reason) as change:
        model = locked(name)
        require_unsplit(model, "")
        change.before = {"default_version": model.default_version or HIGHEST}
        if number is not None:
            servable(model, number)
        model.default_version = number
        publish_fitting(model, change)
    return model


def set_label(actor: Actor, name: str, label: str, number: int | None, *, reason: str = "") -> ServedModel:
    """Point a label at a version; None takes the label away."""
    with act(actor, Act.MODELS_ROLLOUT, Target("model", name), asked={label: number}, reason=reason) as change:
        model = locked(name)
        require_label(label)
        require_unsplit(model, label)
        existing = VersionLabel.objects.filter(model=model, name=label).select_related("version").first()
        change.before = {label: existing.version.number if existing else None}
        if number is None:
            if existing is None:
                raise NotFound(f"{name} has no label {label!r}.")
            existing.delete()
        else:
            version = servable(model, number)
            _require_available(name, number)
            if existing is None and model.labels.count() >= MOST_LABELS:
                raise Conflict(f"{name} has {MOST_LABELS} labels; no model has more. Take one away first.")
            VersionLabel.objects.update_or_create(model=model, name=label, defaults={"version": version})
        publish_fitting(model, change)
    return model


def choose_default(model: ServedModel, before: int | None, new: int, is_default: bool | None) -> None:
    """Which version requests without one get, now that ``new`` is there and ``before`` served until now.

    One that waits for approval changes nothing yet, nor by its approval where the one before was to stay.
    is_default: True: the new one. False: still the one before, if there was one. None: as the model is set, which is
    the highest unless an operator chose one.
    """
    if is_default is None:
        return
    is_waiting = not version_of(model, new).may_serve
    if is_waiting and is_default:
        return
    wanted = new if is_default else before
    if wanted is not None and (is_waiting or model.serving_version != wanted):
        if wanted != model.default_version:
            require_unsplit(model, "")
        model.default_version = wanted


def servable(model: ServedModel, number: int) -> ModelVersion:
    """A version that requests may get. Raises :class:`NotFound`, and :class:`Conflict` for one that may not serve."""
    version = one_of(model.versions.filter(number=number), f"{model.name} has no version {number}.")
    if version.is_withdrawn:
        raise Conflict(f"Version {number} of {model.name} is withdrawn: its repository does not have it any more.")
    if not version.may_serve:
        raise Conflict(f"Version {number} of {model.name} waits for approval of its operations.")
    return version


def require_label(label: str) -> None:
    """Return if a version may have this label. Raises :class:`InvalidRequest`."""
    if not MODEL_NAME.match(label) or len(label) > 50:
        raise InvalidRequest("A label is letters, digits, '.', '_' or '-', at most 50.")


def require_unsplit(model: ServedModel, target: str) -> None:
    """Raise :class:`Conflict` while a default (empty) or a label is split: it moves by a promotion."""
    split = model.splits.filter(target=target).first()
    if split is not None:
        raise Conflict(
            f"A split of {split.what} gives part of its requests version {split.candidate} of {model.name}. Promote"
            " that, or roll it back, first."
        )


def require_no_candidate(model: ServedModel, number: int) -> None:
    """Raise :class:`Conflict` where a split needs the version."""
    split = model.splits.filter(candidate=number).first()
    if split is not None:
        raise Conflict(
            f"Version {number} is the candidate of a split of {split.what} of {model.name}. Promote it, or roll it"
            " back, first."
        )


def _require_available(name: str, number: int) -> None:
    """Raise :class:`Conflict` for a version whose load failed where it was to serve: no label leads to it.

    Any other is AVAILABLE, or becomes so before requests by the label get it.
    """
    feed = running.feed
    pending = feed.view.rollouts.pending(name) if feed is not None else ()
    if any(one.new == number and one.has_failed for one in list(pending)):
        raise Conflict(
            f"Request to assign label to version {number} of model {name}, which is not currently available for "
            "inference: its load failed. The model's page says why; publish the version again, or choose another."
        )
