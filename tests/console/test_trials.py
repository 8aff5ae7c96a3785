"""Try it: the fields of a signature, the request that they make, the key of a call, and what stays of it."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.catalog import registration
from console.catalog.models import ServedModel
from console.config import ConsoleSettings
from console.keys import passing
from console.keys.models import Account, ApiKey
from console.outbox.models import OutboxEntry
from console.trials import front, inputs, services, snippets
from console.trials.models import MOST_ANSWER, Trial
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest, NotFound, Unavailable
from signalbox.wire.modeldocs import Signature, TensorSpec
from tests.console.conftest import submit

Browser = Callable[[str], Client]
WIDE = Signature(
    inputs={
        "image": TensorSpec(dtype="float32", shape=(-1, 2, 2)),
        "name": TensorSpec(dtype="string", shape=(-1,)),
        "count": TensorSpec(dtype="int64", shape=()),
        "is_on": TensorSpec(dtype="bool", shape=(-1,)),
        "rest": TensorSpec(dtype="float32", shape=None),
    },
    outputs={"y": TensorSpec(dtype="float32", shape=(-1,))},
)


def test_each_input_has_a_field_of_its_kind_with_an_example() -> None:
    found = {field.name: (field.kind, field.value) for field in inputs.fields(WIDE)}
    assert found == {
        "image": ("json", "[[[1.0,1.0],[1.0,1.0]]]"),
        "name": ("text", "text"),
        "count": ("numbers", "1"),
        "is_on": ("numbers", "true"),
        "rest": ("json", "1.0"),
    }


def test_an_example_makes_a_request_as_it_is_and_so_does_nothing_at_all() -> None:
    values = {field.name: field.value for field in inputs.fields(WIDE)}
    assert inputs.request("f", WIDE, values) == {
        "signature_name": "f",
        "inputs": {
            "image": [[[1.0, 1.0], [1.0, 1.0]]],
            "name": ["text"],
            "count": 1,
            "is_on": [True],
            "rest": 1.0,
        },
    }
    empty = inputs.request("f", WIDE, {"name": "a\nb"})["inputs"]
    assert (empty["image"], empty["name"], empty["count"], empty["is_on"]) == (
        [[[0.0, 0.0], [0.0, 0.0]]],
        ["a", "b"],
        0,
        [False],
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("image", "[1,", "image: is JSON"),
        ("image", "[" * 100_000, "image: is JSON"),
        ("image", "[" * 990 + "]" * 990, "image: is JSON"),
        ("count", "1 2", "count: is one number"),
        ("count", "one", "count: is numbers"),
        ("is_on", '"true"', "is_on: is numbers"),
        ("rest", "1" * (inputs.MOST_LETTERS + 1), "letters together"),
    ],
)
def test_what_cannot_be_read_names_its_input(name: str, text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        inputs.request("f", WIDE, {"name": "x", name: text})


def test_a_large_tensor_is_not_filled_in_and_a_huge_one_is_refused() -> None:
    large = Signature(inputs={"x": TensorSpec(dtype="float32", shape=(-1, 100, 100))}, outputs={})
    [field] = inputs.fields(large)
    assert (field.value, "Empty: zeros of shape [1, 100, 100]" in field.hint) == ("", True)
    huge = Signature(inputs={"x": TensorSpec(dtype="float32", shape=(2000, 2000))}, outputs={})
    with pytest.raises(InvalidRequest, match="too large"):
        inputs.request("f", huge, {})


def test_the_same_call_is_shown_for_a_shell_and_for_python() -> None:
    body = inputs.request("f", Signature(inputs={"x": TensorSpec(dtype="string", shape=())}, outputs={}), {"x": "it's"})
    assert snippets.curl("https://f", "a b", 3, body) == (
        'curl -H "Authorization: Bearer $SIGNALBOX_KEY" https://f/v1/models/a%20b/versions/3:predict'
        """ -d '{"signature_name":"f","inputs":{"x":"it'"'"'s"}}'"""
    )
    program = snippets.python("https://f", "m", 3, body)
    compile(program, "snippet", "exec")
    assert "client.predict('m', inputs, version=3, signature='f')" in program
    large = {"signature_name": "f", "inputs": {"x": [0.0] * 5000}}
    assert snippets.curl("https://f", "m", 3, large).endswith("-d @request.json")
    compile(snippets.python("https://f", "m", 3, large), "snippet", "exec")


class Front(BaseHTTPRequestHandler):
    """A front that refuses a key once, as one that has not heard of it yet, and then answers."""

    seen: list[tuple[str, dict[str, str], bytes]]
    answers: list[tuple[int, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, dict(self.headers), body))
        status, text = self.answers.pop(0)
        self.send_response(status)
        self.send_header("X-Signalbox-Job-Id", "0190f3a0-0000-4000-8000-000000000001")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def served(console: ConsoleSettings, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Front]]:
    """A front that answers what a test says; keys are published at once."""
    kind = type("OneFront", (Front,), {"seen": [], "answers": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = Thread(target=server.serve_forever)
    thread.start()
    settings.CONSOLE = replace(console, trial_url=f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setattr("console.outbox.services.why_unpublished", lambda *_, **__: "")
    yield kind
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def digits(admin: Actor, base: Path) -> ServedModel:
    """A model with versions 1 and 2."""
    return registration.register(admin, "digits", str(base))


def test_a_call_has_a_key_for_its_model_alone_that_ends_in_minutes(
    admin: Actor, digits: ServedModel, served: type[Front]
) -> None:
    served.answers += [(401, b"{}"), (200, b'{"outputs":[2.5]}')]
    trial = services.send(admin, "digits", 2, "serving_default", {"x": "1, 2"})
    assert (trial.status, trial.answer, trial.job_id[:4]) == (200, '{"outputs":[2.5]}', "0190")
    assert [path for path, _, _ in served.seen] == ["/v1/models/digits/versions/2:predict"] * 2
    _, headers, body = served.seen[-1]
    assert json.loads(body) == {"signature_name": "serving_default", "inputs": {"x": [1, 2]}}
    key = ApiKey.objects.get()
    assert f"_{key.pk}_" in headers["Authorization"]
    assert (key.models_allowed, key.scopes, key.account_id) == (["digits"], ["jobs:submit", "jobs:read"], "console")
    assert key.expires_at is not None
    assert key.expires_at - key.created_at == timedelta(minutes=5)
    audited = AuditEntry.objects.latest("pk")
    assert (audited.act, audited.target, audited.after["key"]) == ("models.try", "digits", key.pk)
    assert "1, 2" not in json.dumps(audited.after)
    assert AuditEntry.objects.filter(act="keys.manage").count() == 0


def test_an_error_of_the_front_is_shown_as_it_is_and_a_long_answer_is_cut(
    admin: Actor, digits: ServedModel, served: type[Front]
) -> None:
    served.answers += [(400, b'{"error":"no such input"}'), (200, b"x" * (MOST_ANSWER + 5))]
    refused = services.send(admin, "digits", 1, "serving_default", {"x": "1"})
    assert (refused.status, refused.answer, refused.error) == (400, '{"error":"no such input"}', "")
    long = services.send(admin, "digits", 1, "serving_default", {"x": "1"})
    assert (len(long.answer), long.is_cut) == (MOST_ANSWER, True)


def test_a_front_that_is_away_is_said_and_a_key_that_is_not_published_is_not_used(
    admin: Actor, digits: ServedModel, console: ConsoleSettings, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.trials.front.KNOWN_WITHIN_S", 0.1)
    assert "do not know the key" in services.send(admin, "digits", 1, "serving_default", {"x": "1"}).error
    monkeypatch.setattr("console.outbox.services.why_unpublished", lambda *_, **__: "")
    settings.CONSOLE = replace(console, front_url="http://127.0.0.1:1")
    assert "cannot be reached" in services.send(admin, "digits", 1, "serving_default", {"x": "1"}).error


@pytest.mark.parametrize("end", ["disabled_at", "deleted_at"])
def test_an_account_whose_keys_are_refused_gets_no_new_one(
    admin: Actor, digits: ServedModel, served: type[Front], end: str
) -> None:
    Account.objects.create(id=passing.ACCOUNT, name="Console: try it", **{end: timezone.now()})
    with pytest.raises(Conflict, match="nobody tries"):
        services.send(admin, "digits", 1, "serving_default", {"x": "1"})
    assert not ApiKey.objects.exists()
    assert not served.seen


def test_what_cannot_be_called_is_refused_before_a_key_is_made(
    admin: Actor, digits: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Conflict, match="not served"):
        services.send(admin, "digits", 9, "serving_default", {})
    with pytest.raises(NotFound, match="no signature"):
        services.send(admin, "digits", 1, "other", {})
    with pytest.raises(InvalidRequest):
        services.send(admin, "digits", 1, "serving_default", {"x": "one"})
    with pytest.raises(Forbidden):
        services.send(system_actor("tests"), "digits", 1, "serving_default", {"x": "1"})
    for _ in range(services.MOST_AT_ONCE):
        assert services._places.acquire(blocking=False)
    try:
        with pytest.raises(Unavailable, match="wait for their answers"):
            services.send(admin, "digits", 1, "serving_default", {"x": "1"})
    finally:
        for _ in range(services.MOST_AT_ONCE):
            services._places.release()
    assert not ApiKey.objects.exists()


def test_keys_and_calls_go_after_some_minutes(admin: Actor, digits: ServedModel, served: type[Front]) -> None:
    served.answers += [(200, b"{}")] * 2
    old, new = (services.send(admin, "digits", 1, "serving_default", {"x": "1"}) for _ in range(2))
    Trial.objects.filter(pk=old.pk).update(at=timezone.now() - services.KEPT)
    key = ApiKey.objects.order_by("created_at").first()
    assert key is not None
    ApiKey.objects.filter(pk=key.pk).update(expires_at=timezone.now() - timedelta(minutes=6))
    services.forget()
    assert [trial.pk for trial in Trial.objects.all()] == [new.pk]
    assert [one.pk for one in ApiKey.objects.all()] != [key.pk]
    removal = OutboxEntry.objects.latest("pk")
    assert (removal.bucket, removal.key, removal.body) == ("keys", key.pk, "")
    assert Account.objects.get(pk=passing.ACCOUNT).name == "Console: try it"


def test_the_page_has_the_form_and_after_it_is_sent_the_answer_for_who_sent_it_alone(
    browser: Browser, cast: dict[str, User], digits: ServedModel, served: type[Front]
) -> None:
    served.answers.append((200, b'{"outputs":[2.5]}'))
    client = browser("model manager")
    page = client.get("/models/digits/try").content.decode()
    assert 'name="input.x" value="1.0"' in page
    assert "$SIGNALBOX_KEY" in page
    sent = submit(client, "/models/digits/try", {"version": "2", "signature": "serving_default", "input.x": "7"})
    assert sent.status_code == 302
    shown = client.get(sent["Location"]).content.decode()
    assert "{&quot;outputs&quot;:[2.5]}" in shown
    assert 'name="input.x" value="7"' in shown
    assert browser("admin").get(sent["Location"]).status_code == 404
    assert browser("operator").get("/models/digits/try").status_code == 403
    refused = submit(client, "/models/digits/try", {"version": "2", "signature": "serving_default", "input.x": "one"})
    assert refused.status_code == 400
    assert 'value="one"' in refused.content.decode()


def test_a_path_names_the_version() -> None:
    assert front.path("a/b", 7) == "/v1/models/a%2Fb/versions/7:predict"
