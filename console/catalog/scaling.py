"""Changes of a model's replicas that follow its load."""

from django.db import transaction

from console.audit.acts import AuditedValues
from console.catalog import publishing
from console.catalog.models import ServedModel
from signalbox.program import log


def scale(name: str, replicas: int, reason: str) -> int | None:
    """Publish so many replicas of a model that scales by itself; what it had, or None where nothing has changed.

    No act of an operator, so the log has it, and the audit has not. 0 that an operator has set stays.
    """
    with transaction.atomic():
        model = ServedModel.objects.select_for_update().filter(name=name).first()
        if model is None or not model.autoscale or model.replicas in {0, replicas}:
            return None
        before, model.replicas = model.replicas, replicas
        publishing.publish(model, AuditedValues())
    log.info("scaling.changed", model=name, before=before, replicas=replicas, reason=reason)
    return before
