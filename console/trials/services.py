"""Trying a model out, and forgetting what was tried."""

import json
import secrets
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec
from django.conf import settings
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.acts import Target, act
from console.catalog import lookup
from console.catalog.models import ModelVersion, ServedModel
from console.database import one_of, repeat
from console.keys import passing
from console.outbox import services as outbox
from console.trials import front, inputs
from console.trials.models import Trial
from signalbox.program.errors import Conflict, Forbidden, NotFound, SignalboxError, Unavailable
from signalbox.wire.modeldocs import Signature
from signalbox.wire.names import Bucket
from signalbox.wire.signatures import DEFAULT, can_be_run

KEPT: Final = timedelta(minutes=30)
EVERY_S: Final = 60.0
MOST_AT_ONCE: Final = 4
"""Calls of one process that wait for their answers: each has a thread."""
_places: Final = threading.BoundedSemaphore(MOST_AT_ONCE)


def offered(model: ServedModel) -> list[ModelVersion]:
    """The versions that may be called, the highest first."""
    return sorted(model.selected(), key=lambda version: -version.number)


def signatures(version: ModelVersion) -> dict[str, Signature]:
    """Those that may be called, the default one first."""
    found = {name: msgspec.convert(one, Signature) for name, one in version.callable_signatures.items()}
    return {
        name: found[name] for name in sorted(found, key=lambda one: (one != DEFAULT, one)) if can_be_run(found[name])
    }


def send(actor: Actor, name: str, number: int, signature: str, given: Mapping[str, str]) -> Trial:
    """Call a version through the front, with a key for this model alone that ends in minutes; what came of it.

    An answer that is an error, or none, is what came of it too. Raises :class:`NotFound`, :class:`Conflict` for a
    version that is not served, :class:`InvalidRequest` that names an input, and :class:`Unavailable` where too many
    calls wait.
    """
    asked = {"version": number, "signature": signature[:200]}
    if not _places.acquire(blocking=False):
        raise Unavailable(f"{MOST_AT_ONCE} calls wait for their answers already.", retry_after_s=5.0)
    try:
        with act(actor, Act.MODELS_TRY, Target("model", name), asked=asked) as change:
            if actor.user is None:
                raise Forbidden("Only an operator who is logged in tries a model out.")
            model = lookup.find(name)
            body = inputs.request(signature, _signature(model, number, signature), given)
            key, text = passing.create(name, actor.name)
            change.after = {**asked, "key": key.pk, "account": passing.ACCOUNT}
        trial = Trial(
            id=secrets.token_hex(16),
            user=actor.user,
            model=name,
            version=number,
            signature=signature,
            inputs=dict(given),
        )
        _call(trial, key.pk, text, json.dumps(body).encode())
        trial.save()
        return trial
    finally:
        _places.release()


def find(user: User, name: str, trial_id: str) -> Trial:
    """What this operator tried of the model lately. Raises :class:`NotFound`."""
    fresh = Trial.objects.filter(user=user, model=name, pk=trial_id, at__gt=timezone.now() - KEPT)
    return one_of(fresh, "This call is no longer kept, or it is another operator's.")


async def keep_forgotten() -> None:
    """Forget what was tried, and its keys, until cancelled."""
    await repeat(forget, EVERY_S, "trials.not_forgotten")


def forget() -> None:
    """Once. Idempotent."""
    Trial.objects.filter(at__lte=timezone.now() - KEPT).delete()
    passing.forget_ended()


def _signature(model: ServedModel, number: int, name: str) -> Signature:
    version = next((one for one in offered(model) if one.number == number), None)
    if version is None:
        raise Conflict(f"Version {number} of {model.name} is not served.")
    found = signatures(version).get(name)
    if found is None:
        raise NotFound(f"Version {number} of {model.name} has no signature {name[:100]!r} that can be called.")
    return found


def _call(trial: Trial, kid: str, key: str, body: bytes) -> None:
    if why := outbox.why_unpublished(Bucket.KEYS, kid, within_s=front.KNOWN_WITHIN_S):
        trial.error = f"Gateways do not know the key of this call yet: {why}"[:500]
        return
    url = settings.CONSOLE.trial_url or settings.CONSOLE.front_url
    try:
        answer = front.call(url.rstrip("/"), front.path(trial.model, trial.version), body, key)
    except SignalboxError as error:
        trial.error = error.public_message[:500]
        return
    trial.status, trial.answer, trial.is_cut, trial.job_id, trial.took_ms = answer
