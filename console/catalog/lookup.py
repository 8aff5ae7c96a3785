"""Finds a model by its name, and a version by its number."""

from console import bounds
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.tombstones import missing, was_deleted
from signalbox.program.errors import NotFound


def find(name: str) -> ServedModel:
    """The model called ``name``. Raises :class:`NotFound`."""
    found = ServedModel.objects.filter(name=name).first()
    if found is None:
        raise NotFound(missing(name))
    return found


def locked(name: str) -> ServedModel:
    """The model, locked until the transaction ends. Raises :class:`NotFound`."""
    found = ServedModel.objects.select_for_update().filter(name=name).first()
    if found is None:
        raise NotFound(missing(name))
    return found


def find_version(name: str, text: str) -> ModelVersion:
    """One version of a model. text: its number. Raises :class:`NotFound`, :class:`InvalidRequest` for no number."""
    return version_of(find(name), bounds.number(text, "version"))


def version_of(model: ServedModel, number: int) -> ModelVersion:
    """One version of this model. Raises :class:`NotFound`."""
    found = ModelVersion.with_deleted.filter(model=model, number=number).first()
    if found is None or found.deleted_at is not None:
        raise NotFound(was_deleted(found) if found is not None else f"{model.name} has no version {number}.")
    found.model = model
    return found
