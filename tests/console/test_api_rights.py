"""The REST API as its own OpenAPI document has it: every operation, every role, and callers without any."""

import asyncio
import io
import re
from typing import Any

import pytest
from django.test import Client
from django.urls import URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from msgspec.structs import replace

from console.accounts.acts import ROLES, Act
from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.config import ConsoleSettings
from console.feed.feed import Feed
from console.feed.running import running
from console.operators import services as accounts
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from tests.console.test_live_view import worker
from tests.rigs.natsserver import NatsServer

ASKED: dict[tuple[str, str], Act | None] = {
    ("get", "/api/me"): None,
    ("get", "/api/models"): Act.MODELS_VIEW,
    ("post", "/api/models"): Act.MODELS_REGISTER,
    ("post", "/api/imports"): Act.MODELS_REGISTER,
    ("get", "/api/models/{name}"): Act.MODELS_VIEW,
    ("patch", "/api/models/{name}"): Act.MODELS_SETTINGS,
    ("post", "/api/models/{name}/versions"): Act.MODELS_REGISTER,
    ("put", "/api/models/{name}/default"): Act.MODELS_ROLLOUT,
    ("put", "/api/models/{name}/policy"): Act.MODELS_ROLLOUT,
    ("put", "/api/models/{name}/approval"): Act.MODELS_APPROVE,
    ("put", "/api/models/{name}/labels/{label}"): Act.MODELS_ROLLOUT,
    ("put", "/api/models/{name}/pin"): Act.RESIDENCY_PIN,
    ("post", "/api/models/{name}/load"): Act.RESIDENCY_LOAD,
    ("get", "/api/models/{name}/figures"): Act.MODELS_VIEW,
    ("get", "/api/models/{name}/splits"): Act.MODELS_VIEW,
    ("put", "/api/models/{name}/splits/{target}"): Act.MODELS_ROLLOUT,
    ("post", "/api/models/{name}/splits/{target}/promote"): Act.MODELS_ROLLOUT,
    ("post", "/api/models/{name}/splits/{target}/roll-back"): Act.MODELS_ROLLOUT,
    ("put", "/api/models/{name}/pause"): Act.QUEUES_PAUSE,
    ("get", "/api/models/{name}/versions/{number}/files"): Act.MODELS_VIEW,
    ("delete", "/api/models/{name}"): Act.MODELS_DELETE,
    ("post", "/api/models/{name}/undo"): Act.MODELS_DELETE,
    ("delete", "/api/models/{name}/versions/{number}"): Act.MODELS_DELETE,
    ("post", "/api/models/{name}/versions/{number}/undo"): Act.MODELS_DELETE,
    ("get", "/api/deleted"): Act.MODELS_VIEW,
    ("get", "/api/repositories"): Act.MODELS_VIEW,
    ("post", "/api/repositories"): Act.REPOSITORIES_MANAGE,
    ("get", "/api/repositories/{name}"): Act.MODELS_VIEW,
    ("patch", "/api/repositories/{name}"): Act.REPOSITORIES_MANAGE,
    ("delete", "/api/repositories/{name}"): Act.REPOSITORIES_MANAGE,
    ("post", "/api/repositories/{name}/undo"): Act.REPOSITORIES_MANAGE,
    ("get", "/api/scaling"): Act.SYSTEM_VIEW,
    ("get", "/api/models/{name}/replicas"): Act.MODELS_VIEW,
    ("put", "/api/hosts/{host}/drain"): Act.WORKERS_DRAIN,
    ("get", "/api/hosts"): Act.SYSTEM_VIEW,
    ("get", "/api/hosts/{host}"): Act.SYSTEM_VIEW,
    ("get", "/api/workers"): Act.SYSTEM_VIEW,
    ("get", "/api/workers/{worker}"): Act.SYSTEM_VIEW,
    ("post", "/api/workers/{worker}/evict"): Act.RESIDENCY_LOAD,
    ("put", "/api/workers/{worker}/drain"): Act.WORKERS_DRAIN,
    ("post", "/api/workers/{worker}/release"): Act.LANES_RELEASE,
    ("get", "/api/devices"): Act.SYSTEM_VIEW,
    ("get", "/api/devices/{gpu}"): Act.SYSTEM_VIEW,
    ("post", "/api/devices/{gpu}/release"): Act.LANES_RELEASE,
    ("get", "/api/keys"): Act.KEYS_VIEW,
    ("post", "/api/keys"): Act.KEYS_MANAGE,
    ("get", "/api/keys/{kid}"): Act.KEYS_VIEW,
    ("get", "/api/unknown-keys"): Act.KEYS_VIEW,
    ("post", "/api/keys/{kid}/adopt"): Act.KEYS_MANAGE,
    ("post", "/api/keys/{kid}/revoke"): Act.KEYS_MANAGE,
    ("post", "/api/keys/{kid}/rotate"): Act.KEYS_MANAGE,
    ("get", "/api/accounts"): Act.ACCOUNTS_VIEW,
    ("post", "/api/accounts"): Act.ACCOUNTS_MANAGE,
    ("get", "/api/accounts/{account_id}"): Act.ACCOUNTS_VIEW,
    ("patch", "/api/accounts/{account_id}"): Act.ACCOUNTS_MANAGE,
    ("put", "/api/accounts/{account_id}/disabled"): Act.ACCOUNTS_DELETE,
    ("post", "/api/accounts/{account_id}/delete"): Act.ACCOUNTS_DELETE,
    ("get", "/api/accounts/{account_id}/use"): Act.ACCOUNTS_VIEW,
    ("get", "/api/keys/{kid}/use"): Act.KEYS_VIEW,
    ("get", "/api/use"): Act.ACCOUNTS_VIEW,
    ("get", "/api/jobs"): Act.JOBS_VIEW,
    ("get", "/api/jobs/{job_id}"): Act.JOBS_VIEW,
    ("post", "/api/jobs/{job_id}/cancel"): Act.JOBS_CANCEL,
    ("get", "/api/jobs/-/errors"): Act.JOBS_VIEW,
    ("post", "/api/jobs/{job_id}/retry"): Act.JOBS_RETRY,
    ("post", "/api/jobs/{job_id}/change"): Act.JOBS_CHANGE,
    ("post", "/api/jobs/{job_id}/delete"): Act.JOBS_DELETE,
    ("get", "/api/selections"): Act.JOBS_VIEW,
    ("post", "/api/selections"): Act.JOBS_CANCEL,
    ("get", "/api/selections/{selection_id}"): Act.JOBS_VIEW,
    ("get", "/api/selections/{selection_id}/items"): Act.JOBS_VIEW,
    ("post", "/api/selections/{selection_id}/start"): Act.JOBS_CANCEL,
    ("post", "/api/selections/{selection_id}/stop"): Act.JOBS_CANCEL,
    ("get", "/api/jobs/{job_id}/input"): Act.JOBS_PAYLOAD,
    ("get", "/api/jobs/{job_id}/output"): Act.JOBS_PAYLOAD,
    ("get", "/api/dead-letters"): Act.JOBS_VIEW,
    ("get", "/api/dead-letters/groups"): Act.JOBS_VIEW,
    ("post", "/api/dead-letters/redrive"): Act.JOBS_REDRIVE,
    ("post", "/api/dead-letters/discard"): Act.JOBS_DISCARD,
    ("get", "/api/dead-letters/{job_id}"): Act.JOBS_VIEW,
    ("post", "/api/dead-letters/{job_id}/redrive"): Act.JOBS_REDRIVE,
    ("post", "/api/dead-letters/{job_id}/discard"): Act.JOBS_DISCARD,
    ("put", "/api/accounts/{account_id}/webhook-hosts"): Act.RESULTS_MANAGE,
    ("get", "/api/subscriptions"): Act.RESULTS_VIEW,
    ("post", "/api/subscriptions"): Act.RESULTS_MANAGE,
    ("get", "/api/subscriptions/{subscription_id}"): Act.RESULTS_VIEW,
    ("delete", "/api/subscriptions/{subscription_id}"): Act.RESULTS_MANAGE,
    ("put", "/api/subscriptions/{subscription_id}/enabled"): Act.RESULTS_SWITCH,
    ("get", "/api/webhooks"): Act.RESULTS_VIEW,
    ("post", "/api/webhooks"): Act.RESULTS_MANAGE,
    ("get", "/api/webhooks/{hook}"): Act.RESULTS_VIEW,
    ("delete", "/api/webhooks/{hook}"): Act.RESULTS_MANAGE,
    ("put", "/api/webhooks/{hook}/enabled"): Act.RESULTS_SWITCH,
    ("post", "/api/webhooks/{hook}/rotate"): Act.RESULTS_MANAGE,
    ("get", "/api/webhooks/{hook}/attempts"): Act.RESULTS_VIEW,
    ("post", "/api/webhooks/{hook}/deliver"): Act.RESULTS_DELIVER,
    ("get", "/api/batches"): Act.RESULTS_VIEW,
    ("get", "/api/batches/{key}"): Act.RESULTS_VIEW,
    ("put", "/api/batches/{key}/asked"): Act.BATCHES_STEER,
    ("get", "/api/queues"): Act.QUEUES_VIEW,
    ("post", "/api/queues"): Act.QUEUES_MANAGE,
    ("get", "/api/queues/{name}"): Act.QUEUES_VIEW,
    ("patch", "/api/queues/{name}"): Act.QUEUES_MANAGE,
    ("delete", "/api/queues/{name}"): Act.QUEUES_MANAGE,
    ("post", "/api/queues/{name}/purge"): Act.QUEUES_PURGE,
    ("post", "/api/queues/{name}/redrive"): Act.QUEUES_REDRIVE,
    ("post", "/api/queues/{name}/reopen"): Act.QUEUES_REDRIVE,
    ("get", "/api/views"): Act.SYSTEM_VIEW,
    ("post", "/api/views"): Act.VIEWS_OWN,
    ("delete", "/api/views/{view_id}"): None,
    ("get", "/api/audit"): Act.AUDIT_VIEW,
    ("get", "/api/exports/{file}"): Act.AUDIT_VIEW,  # of each list its own: test_exports.py
    ("post", "/api/audit/{number}/undo"): Act.AUDIT_VIEW,
    ("get", "/api/users"): Act.USERS_VIEW,
    ("post", "/api/users"): Act.USERS_MANAGE,
    ("get", "/api/users/{username}"): Act.USERS_VIEW,
    ("put", "/api/users/{username}/role"): Act.USERS_MANAGE,
    ("put", "/api/users/{username}/models"): Act.USERS_MANAGE,
    ("put", "/api/users/{username}/active"): Act.USERS_MANAGE,
}
"""What each operation asks of its caller; None: everybody with a token."""
BODIES: dict[str, dict[str, Any]] = {
    "/api/models": {"name": "m", "path": "/nowhere"},
    "/api/imports": {"config": "model_config_list { }"},
    "/api/keys": {"name": "k"},
    "/api/views": {"list": "jobs", "name": "v"},
    "/api/accounts": {"name": "a"},
    "/api/accounts/{account_id}/disabled": {"on": True},
    "/api/accounts/{account_id}/delete": {"jobs": "finish", "reason": "gone"},
    "/api/accounts/{account_id}/webhook-hosts": {"hosts": []},
    "/api/webhooks": {"url": "https://hooks.example.com"},
    "/api/webhooks/{hook}/enabled": {"on": False},
    "/api/webhooks/{hook}/deliver": {"job": "j"},
    "/api/subscriptions/{subscription_id}/enabled": {"on": False},
    "/api/batches/{key}/asked": {"asked": "pause"},
    "/api/queues": {"name": "q", "account": "a"},
    "/api/queues/{name}/purge": {"items": 1},
    "/api/repositories": {"name": "r", "url": "ftp://nowhere"},
    "/api/models/{name}/default": {"version": None},
    "/api/models/{name}/policy": {"kind": "all"},
    "/api/models/{name}/splits/{target}": {"candidate": 2, "weight": 0.1},
    "/api/models/{name}/labels/{label}": {"version": None},
    "/api/models/{name}/approval": {"version": 1},
    "/api/models/{name}/pause": {"on": True},
    "/api/workers/{worker}/drain": {"on": True},
    "/api/hosts/{host}/drain": {"on": True},
    "/api/workers/{worker}/evict": {"model": "m", "version": 1},
    "/api/models/{name}/pin": {"on": True},
    "/api/users": {"username": "u", "password": "short", "role": "viewer"},
    "/api/users/{username}/role": {"role": "viewer"},
    "/api/users/{username}/models": {"models": ["team-*"]},
    "/api/users/{username}/active": {"on": False},
    "/api/dead-letters/redrive": {"until": 1},
    "/api/dead-letters/discard": {"until": 1},
    "/api/models/{name}/load": {"host": "h"},
    "/api/selections": {"act": "cancel", "jobs": []},
}


def operations() -> list[tuple[str, str]]:
    """Method and path of everything the document describes."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    methods = {"get", "post", "put", "patch", "delete"}
    return [(m, path) for path, item in schema["paths"].items() for m in item if m in methods]


def call(client: Client, method: str, path: str) -> Any:
    """One operation, on things that do not exist."""
    path = path.replace("{file}", "audit.csv")
    path = re.sub(r"{\w+}", "thing", path)
    body = BODIES.get(path) or next((b for p, b in BODIES.items() if _is_like(p, path)), {})
    if path.endswith("/versions"):  # multipart
        return client.post(path, {"x": "y"})
    more = {} if method == "get" else {"data": body, "content_type": "application/json"}
    return getattr(client, method)(path, **more)


def _is_like(pattern: str, path: str) -> bool:
    parts, given = pattern.split("/"), path.split("/")
    return len(parts) == len(given) and all(p.startswith("{") or p == g for p, g in zip(parts, given, strict=True))


def test_every_operation_of_the_document_is_named_here_and_every_route_is_in_it() -> None:
    assert set(operations()) == set(ASKED)
    resolvers = [p for p in get_resolver().url_patterns if isinstance(p, URLResolver)]
    (api,) = [p for p in resolvers if str(p.pattern).startswith("api")]
    served = {f"/api/{p.pattern}".replace("<str:", "{").replace(">", "}") for p in api.url_patterns}
    assert served - {"/api/", "/api/schema"} == {path for _, path in ASKED}


@pytest.fixture
def nearby(console: ConsoleSettings, settings: Any, shared_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of NATS itself is answered, and a worker called thing is there."""
    feed = Feed(Wire())
    feed.view.presence("thing", worker("thing"), 1_000_000.0)
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)

    async def lay() -> None:
        bus = await Bus.connect(Wire(nats_url=shared_server.url), role="admin")
        await topology.apply(bus)
        await bus.close()

    asyncio.run(lay())
    settings.CONSOLE = replace(console, nats_url=shared_server.url)


@pytest.mark.usefixtures("nearby")
@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_call_exactly_what_its_rights_say(cast: dict[str, User], role: str) -> None:
    _, text = accounts.create_token(Actor(user=cast[role]), "matrix", 1)
    client = Client(headers={"Authorization": f"Bearer {text}"})
    for (method, path), act in ASKED.items():
        answer = call(client, method, path)
        is_allowed = act is None or act in ROLES[role]
        assert (answer.status_code == 403) is not is_allowed, (role, method, path, answer.content)
        assert answer.status_code < 500, (method, path)
    refused = AuditEntry.objects.filter(result=AuditEntry.REFUSED)
    assert refused.exists() is (role != "admin")


def test_without_a_token_or_a_session_there_is_nothing(db: None) -> None:
    for client in (Client(), Client(headers={"Authorization": "Bearer sbo_aaaaaaaaaaaa_" + "x" * 43})):
        for method, path in ASKED:
            answer = call(client, method, path)
            assert answer.status_code == 401, (method, path)
            assert answer["WWW-Authenticate"].startswith("Bearer")
    assert not AuditEntry.objects.exists()


def test_an_upload_is_refused_before_its_body_is_read(cast: dict[str, User]) -> None:
    _, text = accounts.create_token(Actor(user=cast["viewer"]), "matrix", 1)

    class Untouched(io.BytesIO):
        """A body that must not be read."""

        def read(self, size: int | None = -1) -> bytes:
            raise AssertionError("the body was read")

        readline = read

    given: dict[str, Any] = {"wsgi.input": Untouched(), "CONTENT_LENGTH": "99"}
    client = Client(headers={"Authorization": f"Bearer {text}"})
    kind = "multipart/form-data; boundary=x"
    answer = client.generic("POST", "/api/models/m/versions", b"", content_type=kind, **given)
    assert answer.status_code == 403
    assert AuditEntry.objects.filter(result=AuditEntry.REFUSED).count() == 1
