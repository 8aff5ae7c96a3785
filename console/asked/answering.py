"""Does what a gateway asks for the owner of an API key, through the services that operators use, and answers."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.asked import jobs
from console.catalog import imports, modelsettings, publishing
from console.catalog.models import ServedModel
from console.database import DATABASE_FAULTS, database_away
from console.fleet import services as fleet
from console.keys.models import ApiKey
from signalbox.program import log, metrics
from signalbox.program.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    SignalboxError,
    Unauthorized,
    Unavailable,
)
from signalbox.wire import access
from signalbox.wire.asks import LIST_SCOPE, MOST_BYTES, OK, SCOPE, ConsoleAnswer, ConsoleAsk, JobQuery
from signalbox.wire.messages import decode, encode
from signalbox.wire.names import MODEL_NAME

GRANTED: Final = frozenset({Act.MODELS_SETTINGS, Act.MODELS_ROLLOUT})
"""What the scope lets a key's owner do, to models that the key may call."""
LONGEST_LOAD: Final = timedelta(hours=1)
"""For how long at most a model is loaded ahead of need by one question."""
_MOST_NAMED: Final = 10
ASKED: Final = metrics.counter(
    "console_asks", "What gateways asked for (loads, unloads, reloads, lists), by how it was answered.", "status"
)


def answer(data: bytes, as_of: float = 0.0) -> bytes:
    """The answer to a question, whatever becomes of it. as_of: of the rows of jobs, see :class:`JobPage`."""
    try:
        said = _done(data, as_of)
    except SignalboxError as error:
        said = _refused(error)
    except DATABASE_FAULTS:
        said = _refused(database_away())
    except Exception:  # noqa: BLE001  the edge of a question: one without an answer keeps its caller waiting
        log.exception("console.not_answered")
        said = _refused(Unavailable("The console could not do this; its log says why."))
    ASKED.labels(said.status).inc()
    return encode(said)


def _refused(error: SignalboxError) -> ConsoleAnswer:
    return ConsoleAnswer(status=error.code, text=error.public_message, retry_after_s=error.retry_after_s)


def _done(data: bytes, as_of: float) -> ConsoleAnswer:
    if len(data) > MOST_BYTES:
        raise InvalidRequest(f"The question has more than {MOST_BYTES} bytes.")
    try:
        ask = decode(ConsoleAsk, data)
    except msgspec.MsgspecError as error:
        raise InvalidRequest(
            "The question is not understood: gateway and console are of different releases."
        ) from error
    if ask.what == "jobs":
        key = _key(ask, LIST_SCOPE)
        return ConsoleAnswer(status=OK, page=jobs.page(key.account_id, ask.jobs or JobQuery(), as_of))
    key = _key(ask, SCOPE)
    actor = Actor(user=None, via="gateway", key=key.pk, granted=GRANTED)
    log.info("console.asked", what=ask.what, key=key.pk, model=ask.model)
    return ConsoleAnswer(status=OK, text=_ACTS[ask.what](actor, key, ask))


def _key(ask: ConsoleAsk, scope: str) -> ApiKey:
    """The key, as the database has it now. Raises :class:`Unauthorized` and :class:`Forbidden`."""
    key = ApiKey.objects.select_related("account").filter(pk=ask.key_id, account_id=ask.account).first()
    if key is None or key.state() != "active":
        raise Unauthorized("The console does not know this API key, or it has ended.")
    if scope not in key.scopes:
        raise Forbidden(f"This API key lacks the scope {scope}.")
    return key


def _model(key: ApiKey, name: str) -> ServedModel:
    """A model that the key may call. Raises :class:`NotFound` for any other."""
    # Not every text can be looked up: PostgreSQL refuses a NUL.
    is_name = MODEL_NAME.match(name) is not None
    model = ServedModel.objects.select_related("repository").filter(name=name).first() if is_name else None
    if model is None or not access.may_use(key.document(), model.document()):
        raise NotFound(f"There is no model {name[:100]!r}.")
    return model


def _load(actor: Actor, key: ApiKey, ask: ConsoleAsk) -> str:
    """Enable a model that a key has disabled, and have it loaded ahead of need."""
    model = _model(key, ask.model)
    if not model.is_enabled:
        modelsettings.set_enabled(actor, model.name, is_enabled=True, reason="A key's owner has loaded it.")
    if not model.replicas:
        raise Conflict(f"{model.name} has no replicas: an operator has set them to 0.")
    if model.serving_version is None:
        raise Conflict(f"{model.name} has no version that may serve.")
    now = timezone.now()
    until = min(max(datetime.fromtimestamp(ask.until, UTC), now), now + LONGEST_LOAD)
    desired = fleet.prefetch(actor, model.name, until=until)
    if why := publishing.why_unpublished(model.name) or fleet.why_unpublished(desired):
        raise Conflict(f"It is decided, and not published to the fleet yet: {why}")
    return f"{model.name} is loaded."


def _unload(actor: Actor, key: ApiKey, ask: ConsoleAsk) -> str:
    """Disable a model, so that it leaves the devices and requests are refused with the reason."""
    model = _model(key, ask.model)
    if model.is_enabled:
        modelsettings.set_enabled(actor, model.name, is_enabled=False, reason="A key's owner has unloaded it.")
        if why := publishing.why_unpublished(model.name):
            raise Conflict(f"It is decided, and not published to the fleet yet: {why}")
    return f"{model.name} is unloaded."


def _reload(actor: Actor, key: ApiKey, ask: ConsoleAsk) -> str:
    """Give imported models the versions and labels of a configuration; those that it omits are disabled."""
    ours = {
        model.name: model
        for model in ServedModel.objects.exclude(imported={}).select_related("repository")
        if access.may_use(key.document(), model.document())
    }
    others = sorted({one.name[:100] for one in ask.models} - ours.keys())
    if others:
        raise Conflict(
            f"These models were not made by an import, or are not this key's: {', '.join(others[:_MOST_NAMED])}. "
            "An operator imports them first: signalbox models import."
        )
    for one in ask.models:
        if one.base_path and imports.folder(one.base_path) != imports.folder(ours[one.name].imported["base_path"]):
            raise Conflict(
                f"base_path of {one.name}: it was imported from another place. An operator imports it from there."
            )
    for one in ask.models:
        imports.policy_of(one)  # what is none refuses all, before anything is changed
    left = [f"{one.name}: {why}" for one in ask.models for why in imports.reload(actor, one)]
    for name in sorted(ours.keys() - {one.name for one in ask.models}):
        if ours[name].is_enabled:
            modelsettings.set_enabled(actor, name, is_enabled=False, reason="The configuration omits it.")
    if left:
        raise Conflict(f"All but this is done: {'; '.join(left[:_MOST_NAMED])}")
    return "The configuration is in force."


_ACTS: Final[Mapping[str, Callable[[Actor, ApiKey, ConsoleAsk], str]]] = {
    "load": _load,
    "unload": _unload,
    "reload": _reload,
}
