"""Settings of a model, and whether it takes requests."""

import math
from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import ValidationError

from console.accounts.acts import Act
from console.accounts.rights import KEY, Actor
from console.audit.acts import Target, act
from console.catalog.independence import ask_for_joining
from console.catalog.lookup import locked
from console.catalog.models import ServedModel
from console.catalog.publishing import publish
from signalbox.program.errors import Conflict, InvalidRequest

AUTOSCALE: Final = (
    "autoscale",
    "autoscale_min",
    "autoscale_max",
    "queue_backlog",
    "target_wait_s",
    "scale_tolerance",
    "scale_up_window_s",
    "scale_down_window_s",
    "scale_to_zero_grace_s",
    "scale_up_activation",
)
"""Those of :data:`SETTINGS` that say how replicas follow the load."""
SETTINGS = (
    "description",
    "replicas",
    *AUTOSCALE,
    "rows_independent",
    "max_batch_size",
    "max_batch_delay_ms",
    "max_delivery",
    "timeout_s",
    "deadline_s",
    "sync_wait_s",
    "max_queue",
    "max_payload_bytes",
)
"""Fields :func:`change_settings` takes."""


def change_settings(actor: Actor, name: str, changes: Mapping[str, Any], *, reason: str = "") -> ServedModel:
    """Change replicas, batching, limits or the description.

    Raises :class:`InvalidRequest` naming each field, and :class:`Conflict` where ``rows_independent`` is asked for and
    a worker has found that the rows of the version that serves are not.
    """
    with act(actor, Act.MODELS_SETTINGS, Target("model", name), asked=changes, reason=reason) as change:
        model = locked(name)
        change.before = {field: getattr(model, field) for field in changes if field in SETTINGS}
        if changes.get("rows_independent") and not model.rows_independent:
            ask_for_joining(model)
        assign(model, changes)
        change.after = {field: getattr(model, field) for field in changes}
        publish(model, change)
    return model


def set_enabled(actor: Actor, name: str, *, is_enabled: bool, reason: str = "") -> ServedModel:
    """Let the model take requests, or refuse them with the reason.

    Raises :class:`Conflict` for a key's owner who would enable what an operator has disabled.
    """
    asked = {"is_enabled": is_enabled}
    with act(actor, Act.MODELS_SETTINGS, Target("model", name), asked=asked, reason=reason) as change:
        model = locked(name)
        change.before = {"is_enabled": model.is_enabled}
        is_operators = not model.is_enabled and not model.disabled_by.startswith(KEY)
        if is_operators and actor.name.startswith(KEY):
            if is_enabled:
                raise Conflict(f"{name} was disabled by an operator, who alone enables it again.")
            return model
        model.is_enabled, model.disabled_by = is_enabled, "" if is_enabled else actor.name
        publish(model, change)
    return model


def checked_settings(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a new model can have. Raises :class:`InvalidRequest` naming each field that it cannot."""
    model = ServedModel(name="new", base_path="/")
    assign(model, changes)
    return {field: getattr(model, field) for field in changes}


def assign(model: ServedModel, changes: Mapping[str, Any]) -> None:
    """Give the model these settings, unsaved. Raises :class:`InvalidRequest` naming each field that it cannot have."""
    unknown = sorted(set(changes) - set(SETTINGS))
    if unknown:
        raise InvalidRequest(f"Unknown settings: {', '.join(unknown)}. Known: {', '.join(SETTINGS)}.")
    for field, value in changes.items():
        if isinstance(value, float) and not math.isfinite(value):  # no bound refuses a NaN
            raise InvalidRequest(f"{field}: is a finite number.")
        setattr(model, field, value)
    try:
        model.clean_fields(exclude=["repository"])  # which costs a query, and is a row that was read
    except ValidationError as error:
        faults = "; ".join(f"{field}: {' '.join(said)}" for field, said in error.message_dict.items())
        raise InvalidRequest(faults) from error
    for least in ("autoscale_min", "scale_up_activation"):
        if changes.keys() & {least, "autoscale_max"} and getattr(model, least) > model.autoscale_max:
            raise InvalidRequest(f"{least}: is at most autoscale_max, which is {model.autoscale_max}.")
