"""Acts on which versions of a model are served: its policy, and what follows when a version was ready."""

from collections.abc import Collection, Mapping
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import AuditedValues, Target, act
from console.catalog import policy
from console.catalog.lookup import locked
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.publishing import publish, publish_fitting
from signalbox.program.errors import Conflict


def set_policy(actor: Actor, name: str, given: Mapping[str, Any], *, reason: str = "") -> ServedModel:
    """Choose which versions are served, as :mod:`console.catalog.policy` has it.

    Raises :class:`InvalidRequest` for what is no policy, :class:`Conflict` where no version would be served any more.
    """
    with act(actor, Act.MODELS_ROLLOUT, Target("model", name), asked={"policy": dict(given)}, reason=reason) as change:
        wanted = policy.checked(given)
        model = locked(name)
        before = model.selected()
        change.before = {"policy": model.policy, "versions": [one.number for one in before]}
        model.policy = wanted
        after = model.selected()
        if before and not after:
            raise Conflict(f"policy: {policy.shown(wanted)} leaves no version of {name} to be served.")
        change.after = {"policy": wanted, "versions": [one.number for one in after]}
        publish_fitting(model, change)
    return model


def retire(name: str, numbers: Collection[int]) -> None:
    """Serve these versions no more, which retire. Idempotent."""
    with transaction.atomic():
        model = locked(name)
        gone = {number for number in numbers if str(number) in model.retiring}
        if gone:
            model.published = [number for number in model.published if number not in gone]
            publish(model, AuditedValues())


def note_ready(rows: QuerySet[ModelVersion]) -> None:
    """Note that a worker had the version ready; where an older one retires by that, the model is published. Idempotent.

    rows: of one version.
    """
    new = rows.filter(first_ready_at=None)
    name = new.values_list("model__name", flat=True).first()
    if name is None:
        return
    with transaction.atomic():
        model = ServedModel.objects.select_for_update().filter(name=name).first()
        if model is None:  # it was deleted meanwhile
            return
        before = model.selected()
        new.update(first_ready_at=timezone.now())
        if model.selected() != before:
            publish(model, AuditedValues())
