"""What the REST API does not take: it says so by name, in one form, the framework's refusals too."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError
from django.test import Client

from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.api import views
from console.api.schema import document
from console.catalog import registration
from console.catalog.models import ServedModel
from console.feed.feed import Feed
from console.feed.running import running
from console.fleet.models import DesiredState
from console.operators import services as accounts
from console.outbox.models import OutboxEntry
from signalbox.program.settings import Wire
from tests.console.conftest import submit
from tests.console.test_api_rights import operations
from tests.console.test_jobs import make
from tests.console.test_keys import FORM as KEY
from tests.console.test_live_view import worker

UNKNOWN = "colour"


@pytest.fixture
def program(cast: dict[str, User]) -> Client:
    """A program with the admin's token."""
    _, text = accounts.create_token(Actor(user=cast["admin"]), "refusals", 1)
    return Client(headers={"Authorization": f"Bearer {text}"})


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """The live feed of this process, which learns of one worker."""
    feed = Feed(Wire())
    feed.view.presence("w1", worker("w1"), 1_000_000.0)
    monkeypatch.setattr(running, "feed", feed)
    return feed


def ask(client: Client, method: str, path: str, body: Any = None, query: str = "") -> Any:
    """One call on things that do not exist."""
    for parameter in document()["paths"][path][method].get("parameters", ()):
        thing = "1" if parameter["schema"]["type"] == "integer" else "thing"
        path = path.replace(f"{{{parameter['name']}}}", thing)
    if path.endswith("/versions"):  # multipart
        return client.post(path + query, body or {})
    sent = json.dumps(body) if body else ""
    return client.generic(method.upper(), path + query, sent, content_type="application/json")


def bodies() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and body schema of every operation that takes one."""
    schemas = document()["components"]["schemas"]
    for method, path in operations():
        content = document()["paths"][path][method].get("requestBody", {}).get("content", {})
        for kind in content.values():
            yield method, path, schemas[kind["schema"]["$ref"].rsplit("/", 1)[-1]]


def test_every_operation_refuses_a_query_parameter_it_does_not_have(program: Client) -> None:
    for method, path in operations():
        answer = ask(program, method, path, query=f"?{UNKNOWN}=red")
        assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json"), path
        assert list(answer.json()["fields"]) == [UNKNOWN], (method, path)


def test_every_operation_refuses_a_field_it_does_not_have_and_names_the_nearest(program: Client) -> None:
    walked = set()
    for method, path, schema in bodies():
        walked.add((method, path))
        for name in schema["properties"]:
            answer = ask(program, method, path, {f"{name}_": "x", UNKNOWN: "red"})
            assert answer.status_code == 400, (method, path)
            fields = answer.json()["fields"]
            assert f"did you mean {name}?" in fields[f"{name}_"][0]
            assert UNKNOWN in fields
    for method, path in set(operations()) - walked:  # those that take no body at all
        answer = ask(program, method, path, {UNKNOWN: "red"})
        assert answer.status_code == 400, (method, path)
        assert list(answer.json()["fields"]) == [UNKNOWN]
        for odd in (5, [1], [{"a": 1}]):
            answer = ask(program, method, path, odd)
            assert answer.status_code == 400
            assert answer.json()["detail"].startswith("The body must be a JSON object, not")
    assert {method for method, _ in walked} >= {"post", "put", "patch"}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=failed", 1),
        ("q=state:failed", 1),
        ("model=digits&state=succeeded", 2),
        ("state=failed,running", 2),
        ("q=model:digits&state=failed", 1),
        ("account=unknown", 0),
    ],
)
def test_each_filter_is_a_parameter_too(program: Client, query: str, found: int) -> None:
    for number, state in enumerate(("failed", "succeeded", "succeeded", "running"), 1):
        make(number, state=state)
    assert len(program.get(f"/api/jobs?{query}").json()["jobs"]) == found


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("jobs?stat=failed", "stat: There is no such query parameter; did you mean state?"),
        ("jobs?state=faild", "state: is one of queued"),
        ("jobs?state=failed%20model:x", "state: Give one word"),
        ("jobs?state=failed&state=running", "state: Give it once."),
        ("jobs?size=lots", "size: A valid integer is required."),
        ("jobs?size=501", "size: Ensure this value is less than or equal to 500."),
        ("audit?before=-1", "before: Ensure"),
        ("schema?stat=failed", "stat: There is no such query parameter. Known: format, lang."),
        ("schema?lang=en&lang=de", "lang: Give it once."),
        ("me?format=xml", "format: There is no such query parameter. Known: none."),
    ],
)
def test_a_query_that_means_nothing_is_refused_by_name(program: Client, path: str, said: str) -> None:
    answer = program.get(f"/api/{path}")
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(said)


def test_faults_deep_in_a_body_are_told_in_words_and_by_path(program: Client) -> None:
    body = {"name": "k", "scopes": ["jobs:read", "jobs:write"], "networks": [{}], "days": 0}
    answer = program.post("/api/keys", body, content_type="application/json")
    problem = answer.json()
    assert answer.status_code == 400
    assert "ErrorDetail" not in answer.content.decode()
    assert sorted(problem["fields"]) == ["days", "networks[0]", "scopes[1]"]
    assert '"jobs:write" is not a valid choice.' in problem["detail"]
    body = {"name": "m", "path": "/m", "settings": {"replica": 2}}
    refused = program.post("/api/models", body, content_type="application/json").json()
    assert "did you mean replicas?" in refused["fields"]["settings.replica"][0]
    whole = program.post("/api/keys", [1], content_type="application/json").json()
    assert whole["detail"] == "The body must be a JSON object, not a list."


def test_a_number_larger_than_any_row_holds_is_refused_by_name(
    program: Client, browser: Callable[[str], Client], base: Any
) -> None:
    registration.register(system_actor("tests"), "digits", str(base / "1"))
    huge = 10**30
    for name in ("rate", "per_s", "quota", "quota_window_s"):
        body = {"name": "k", name: huge}
        answer = program.post("/api/keys", body, content_type="application/json")
        assert (answer.status_code, list(answer.json()["fields"])) == (400, [name])
    for path in ("default", "labels/stable"):
        answer = program.put(f"/api/models/digits/{path}", {"version": huge}, content_type="application/json")
        assert (answer.status_code, list(answer.json()["fields"])) == (400, ["version"])
    archive = SimpleUploadedFile("m.tgz", b"x")
    answer = program.post("/api/models/digits/versions", {"archive": archive, "number": huge})
    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["number"])
    client = browser("admin")
    for name in ("rate", "per_s", "quota"):
        assert submit(client, "/keys/new", {**KEY, name: huge}).status_code == 400
    archive = SimpleUploadedFile("m.tgz", b"x")
    form = {"name": "digits", "archive": archive, "number": huge, "is_default": "new"}
    assert submit(client, "/models/-/upload", form).status_code == 400
    folder = base / str(huge)
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"x")
    body = {"name": "digits", "path": str(base)}
    answer = program.post("/api/models", body, content_type="application/json")
    assert (answer.status_code, "up to 9223372036854775807" in answer.json()["detail"]) == (400, True)


def test_settings_for_a_model_that_is_there_are_refused_and_not_dropped(program: Client, base: Any) -> None:
    body = {"name": "digits", "path": str(base / "1")}
    assert program.post("/api/models", body, content_type="application/json").status_code == 202
    again = {"name": "digits", "path": str(base), "settings": {"replicas": 2}}
    answer = program.post("/api/models", again, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert ServedModel.objects.get().versions.count() == 1


def test_whatever_does_not_exist_is_404_and_nothing_is_asked_of_it(
    program: Client, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feed, "is_blind", False)
    body = {"on": True, "reason": "x"}
    for path in ("workers/w9/drain", "models/none/pause"):
        answer = program.put(f"/api/{path}", body, content_type="application/json")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert not DesiredState.objects.exists()
    answer = program.put("/api/workers/w1/drain", body, content_type="application/json").json()
    assert (answer["on"], answer["reason"]) == (True, "x")
    monkeypatch.setattr(running, "feed", None)  # it has gone; what was asked of it can be taken back
    body["on"] = False
    answer = program.put("/api/workers/w1/drain", body, content_type="application/json").json()
    assert answer["on"] is False


def test_without_nats_a_worker_that_is_not_remembered_is_neither_there_nor_not(program: Client) -> None:
    make(1, worker="w7")
    body = {"on": True}
    blind = program.put("/api/workers/w9/drain", body, content_type="application/json")
    assert (blind.status_code, blind["Retry-After"]) == (503, "5")
    known = program.put("/api/workers/w7/drain", body, content_type="application/json")
    assert known.status_code == 202


def test_a_gpu_that_does_not_exist_is_not_asked_to_be_released(
    browser: Callable[[str], Client], feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feed, "is_blind", False)
    client = browser("operator")
    assert submit(client, "/live/release", {"gpu": "GPU-9"}).status_code == 404
    assert submit(client, "/live/release", {"gpu": "GPU-1"}).status_code == 200
    assert OutboxEntry.objects.filter(kind=OutboxEntry.RELEASE).count() == 1


@pytest.mark.parametrize("path", ["/api/none", "/api/models/x/y/z", "/api/jobs/", "/api//"])
def test_a_path_below_api_that_leads_nowhere_is_a_problem(client: Client, path: str) -> None:
    for method in (client.get, client.post):
        answer: Any = method(path)
        assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
        assert answer.json()["code"] == "not_found"
        assert path in answer.json()["detail"]


def test_our_own_faults_below_api_are_problems(program: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    program.raise_request_exception = False
    for fault, status, code in ((ZeroDivisionError, 500, "internal"), (OperationalError, 503, "unavailable")):

        def fail(*_: Any, fault: type[Exception] = fault, **__: Any) -> None:
            raise fault

        monkeypatch.setattr(views.Console, "actor", fail)
        answer = program.get("/api/me")
        assert answer["Content-Type"] == "application/problem+json"
        assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_host_that_is_not_served_is_told_so_in_the_caller_s_form(client: Client) -> None:
    answer = client.get("/api/me", headers={"Host": "evil.example"})
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert b"<h1>" in client.get("/login", headers={"Host": "evil.example"}).content
