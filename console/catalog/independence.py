"""What workers find of joined requests, and what that does to the setting that rows are independent."""

from typing import Final

from django.db import transaction
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import system_actor
from console.audit.acts import AuditedValues, Target, act
from console.catalog.joining import difference
from console.catalog.models import ServedModel
from console.catalog.publishing import publish
from signalbox.program.errors import Conflict
from signalbox.wire import workerdocs

_MOST_WORDS: Final = 600
"""Of what a worker has found."""


def note_joining(worker: str, name: str, number: int, found: workerdocs.Joining) -> bool:
    """Note what a worker has found of a version's joined requests, and publish it. Idempotent.

    Where requests without a label get the version, a difference refuses the setting: it is turned off again. False
    where the version is unknown, has other files, or this is known of it.
    """
    with transaction.atomic():
        model = ServedModel.objects.select_for_update().filter(name=name).first()
        version = model.versions.filter(number=number, digest=found.digest).first() if model is not None else None
        if model is None or version is None or version.tried is not None:
            return False
        version.joining = {
            "joined": list(found.joined),
            "differs": found.differs[:_MOST_WORDS],
            "untried": found.untried[:_MOST_WORDS],
            "digest": found.digest,
            "worker": worker,
            "at": timezone.now().isoformat(),
        }
        version.save(update_fields=["joining"])
        if not (model.rows_independent and difference(model)):
            publish(model, AuditedValues())
            return True
        reason = f"Joined, requests of version {model.serving_version} get other answers."
        with act(system_actor("trial"), Act.MODELS_SETTINGS, Target("model", name), reason=reason) as change:
            publish(model, change)
    return True


def ask_for_joining(model: ServedModel) -> None:
    """Have versions tried again that could not be tried. Raises :class:`Conflict` where the one that serves differs."""
    if differs := difference(model):
        raise Conflict(
            f"rows_independent: a worker has tried version {model.serving_version}. Joined, requests get other "
            f"answers. {differs} Register a version whose rows are independent."
        )
    for version in model.versions.all():
        tried = version.tried
        if tried is not None and tried["untried"]:
            version.joining = None
            version.save(update_fields=["joining"])
