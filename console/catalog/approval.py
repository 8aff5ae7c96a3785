"""Acts on a version's operations that need approval: a person lets it serve."""

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.catalog.lookup import locked, version_of
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.publishing import publish_fitting
from signalbox.program.errors import Conflict, Forbidden


def approve(actor: Actor, name: str, number: int, *, reason: str = "") -> ServedModel:
    """Approve a version's operations so that it serves. The approver is not the operator who added the version, nor
    the one who added the repository that brought it, or changed that last.

    The same for a serving version that needs approval by today's list (:mod:`console.catalog.judging`).
    Raises :class:`Forbidden` for the operator who added it and for programs, :class:`Conflict` without need of
    approval.
    """
    with act(actor, Act.MODELS_APPROVE, Target("model", name), asked={"version": number}, reason=reason) as change:
        model = locked(name)
        version = version_of(model, number)
        if version.is_approved and not version.raised_ops:
            raise Conflict(f"Version {number} of {name} does not wait for approval.")
        _require_another_person(actor, model, version)
        before = model.serving_version
        version.approved_by = actor.name
        version.listed_ops, version.raised_ops = {**version.listed_ops, **version.raised_ops}, {}
        version.save(update_fields=["approved_by", "listed_ops", "raised_ops"])
        change.before = {"default": before}
        change.after = {
            "version": number,
            "digest": version.digest,
            "approved_operations": version.listed_ops,
            "default": model.serving_version,
        }
        publish_fitting(model, change)
    return model


def _require_another_person(actor: Actor, model: ServedModel, version: ModelVersion) -> None:
    """Raise :class:`Forbidden` for programs, and for who added the version, or the repository that brought it."""
    if actor.user is None or actor.user.is_service or actor.name == version.added_by:
        raise Forbidden("A version's operations are approved by a person who did not add the version.")
    if actor.name in version.interested:
        raise Forbidden(
            f"A version's operations are approved by a person who neither added the repository {model.repository} nor"
            " changed it last."
        )
