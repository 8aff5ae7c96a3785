"""Publishes models' documents, and tells why one is not published yet."""

from typing import Final

from django.utils import timezone

from console.audit.acts import AuditedValues
from console.catalog.joining import difference
from console.catalog.models import ServedModel
from console.outbox import services as outbox
from console.outbox.services import model_key, post_document, waiting
from console.repositories.models import Repository
from signalbox.program.errors import Conflict
from signalbox.wire import messages, modeldocs
from signalbox.wire.assets import JOB_MAX_BYTES
from signalbox.wire.names import Bucket, untoken

_GROUP: Final = 200
"""Models whose documents are in memory at once."""
MOST_DOCUMENT: Final = JOB_MAX_BYTES - 4096
"""Bytes of a model's document: what NATS takes, less room for headers and for a longer description."""


def publish(model: ServedModel, change: AuditedValues) -> modeldocs.Model:
    """Save and publish; what is published. Within the caller's transaction.

    Where the version that serves now is known to differ, no setting joins its requests.
    """
    if model.rows_independent and (differs := difference(model)):
        model.rows_independent = False
        change.before = {**change.before, "rows_independent": True}
        change.after = {
            **change.after,
            "rows_independent": False,
            "differs": f"Version {model.serving_version}: {differs}",
        }
    model.updated_at = timezone.now()
    model.note_published(model.updated_at.timestamp())
    model.save()
    # Read back: prefetched or cached relations must not be what is published.
    fresh = ServedModel.objects.select_related("repository", "config").prefetch_related(
        "versions", "splits", "labels__version"
    )
    document = fresh.get(pk=model.pk).document()
    post_document(Bucket.MODELS, model_key(model.name), document, name=model.name)
    return document


def publish_fitting(model: ServedModel, change: AuditedValues) -> modeldocs.Model:
    """Publish as :func:`publish` does, what may be more than before. Raises :class:`Conflict` where NATS would not take
    the document.
    """
    document = publish(model, change)
    if (size := len(messages.encode(document))) > MOST_DOCUMENT:
        raise Conflict(
            f"With these versions the document of {model.name} has {size} bytes, and NATS takes {MOST_DOCUMENT}: its"
            " signatures are too many or too long. Fewer versions of it have room."
        )
    return document


def publish_all(repository: Repository) -> int:
    """Publish every model of a repository, whose terms have changed; returns how many there are."""
    models = ServedModel.objects.filter(repository=repository)
    models.update(updated_at=timezone.now())
    found = models.select_related("repository", "config").prefetch_related("versions", "splits", "labels__version")
    pks = list(models.values_list("pk", flat=True))
    for start in range(0, len(pks), _GROUP):  # one group is in memory: there may be thousands of models
        group = found.filter(pk__in=pks[start : start + _GROUP])
        outbox.post_documents(Bucket.MODELS, [(model_key(model.name), model.document(), model.name) for model in group])
    return len(pks)


def unpublished() -> dict[str, str]:
    """Why the newest decision on each model is not published, by the model's name."""
    return {untoken(key): why for key, why in waiting(Bucket.MODELS).items()}


def why_unpublished(name: str) -> str:
    """Why the newest decision on a model is not published, empty once it is; waits a moment for it."""
    return outbox.why_unpublished(Bucket.MODELS, model_key(name))
