"""What a default or a label may lead to, and when it may be led elsewhere."""

from console.catalog.models import ModelVersion, ServedModel
from console.database import one_of
from signalbox.program.errors import Conflict, InvalidRequest
from signalbox.wire.names import MODEL_NAME


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
