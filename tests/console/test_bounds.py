"""What comes from outside has its bound before it is used: numbers, ages, words, depth, characters."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console import bounds
from console.accounts.rights import system_actor
from console.audit.models import AuditEntry
from console.catalog import registration
from console.catalog.models import ServedModel
from console.jobs import query
from console.keys.models import ApiKey
from signalbox.program import metrics
from signalbox.program.errors import InvalidRequest
from tests.console.conftest import submit
from tests.console.test_api_refusals import program
from tests.console.test_keys import FORM as KEY

__all__ = ["program"]
JSON = "application/json"


def deep(levels: int) -> str:
    """JSON of so many lists in one another."""
    return "[" * levels + "]" * levels


def refused(route: str, status: int) -> float:
    """Requests counted as answered so."""
    labels = {"route": route, "status": str(status)}
    return metrics.REGISTRY.get_sample_value("signalbox_console_refused_total", labels) or 0.0


def test_what_no_route_is_for_is_counted_as_one(browser: Callable[[str], Client]) -> None:
    before = refused("none", 404)
    for path in ("/nothing", "/here", "/api/nothing"):
        assert browser("viewer").get(path).status_code == 404
    assert refused("none", 404) == before + 3


@pytest.mark.parametrize("where", ["api/jobs", "jobs"])
@pytest.mark.parametrize(
    "text",
    [
        "version:99999999999999999999",
        "token:99999999999999999999",
        "token:9223372036854775808",
        "version:-1",
        "version:1_0",
        "created:<999999d",
        "created:>999999d",
        "took:>99999999999m",
        "m " * 1_500,
        "m" * 5_000,
        "model:" + "a," * 50,
    ],
)
def test_a_filter_past_its_bounds_is_refused_on_the_page_and_in_the_api(
    program: Client, browser: Callable[[str], Client], where: str, text: str
) -> None:
    client = program if where.startswith("api") else browser("viewer")
    before = refused(where.replace("/", "-"), 400)
    assert client.get(f"/{where}", {"q": text}).status_code == 400
    assert refused(where.replace("/", "-"), 400) == before + 1


@pytest.mark.parametrize(
    "text",
    [
        f"version:{bounds.MOST_NUMBER}",
        f"token:{bounds.MOST_NUMBER}",
        "created:<36500d",
        "created:>36500d",
        "took:<99999999m",
        "m " * bounds.MOST_WORDS,
        "model:" + "a," * (bounds.MOST_VALUES - 1),
    ],
)
def test_a_filter_at_its_bounds_is_answered(program: Client, text: str) -> None:
    assert program.get("/api/jobs", {"q": text}).status_code == 200


def test_an_unknown_filter_is_not_repeated_whole() -> None:
    with pytest.raises(InvalidRequest) as caught:
        query.parse(f"{'x' * 1_500}:1", timezone.now())
    assert len(caught.value.public_message) < 300


@pytest.mark.parametrize(
    "body",
    [
        deep(100_000),
        f'{{"name": "k", "rate": {deep(5_000)}}}',
        deep(33),
        '{"name": "\\ud800"}',
        '{"\\ud800": 1}',
        '{"name": "k", "name": "j"}',
        '{"name": "k"',
        "\ufeff{}",
        '{"name": "k", "rate": NaN}',
        '{"name": "k", "rate": 1e999}',
        '{"name": "k", "rate": %s}' % ("9" * 500),
    ],
)
def test_a_body_that_is_too_deep_or_no_json_is_the_callers_fault(program: Client, body: str) -> None:
    answer = program.post("/api/keys", body, content_type=JSON)
    assert answer.status_code == (413 if body.startswith("[" * 50_000) else 400)
    assert answer["Content-Type"] == "application/problem+json"
    assert not ApiKey.objects.exists()


def test_deep_settings_of_a_model_are_the_callers_fault(program: Client, base: Any) -> None:
    registration.register(system_actor("tests"), "digits", str(base / "1"))
    for path, method in (("models", program.post), ("models/digits", program.patch)):
        body = f'{{"name": "m", "path": "/m", "settings": {{"replicas": {deep(5_000)}}}}}'
        assert method(f"/api/{path}", body, content_type=JSON).status_code == 400


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**31, "1e30", -1, 1.5])
@pytest.mark.parametrize("field", ["rate", "per_s", "quota", "quota_window_s"])
def test_a_key_with_a_number_that_no_gateway_counts_to_is_not_made(
    program: Client, browser: Callable[[str], Client], field: str, number: Any
) -> None:
    text = f'{{"name": "k", "{field}": {number}}}'
    answer = program.post("/api/keys", text, content_type=JSON)
    assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])
    assert submit(browser("admin"), "/keys/new", {**KEY, field: number}).status_code == 400
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "NaN"])
def test_a_setting_that_is_no_finite_number_is_refused_by_name(program: Client, base: Any, number: str) -> None:
    registration.register(system_actor("tests"), "digits", str(base / "1"))
    for field in ("timeout_s", "deadline_s", "sync_wait_s", "max_batch_delay_ms"):
        text = json.dumps({field: number})
        answer = program.patch("/api/models/digits", text, content_type=JSON)
        assert answer.status_code == 400
        assert field in answer.json()["detail"]
    answer = program.post("/api/keys/none/rotate", {"overlap_days": number}, content_type=JSON)
    assert answer.status_code == 400


@pytest.mark.parametrize("number", ["9" * 20, str(2**63), "-1", "two", "1.0", "\u00b2"])
def test_a_version_that_is_no_number_changes_nothing(browser: Callable[[str], Client], base: Any, number: str) -> None:
    registration.register(system_actor("tests"), "digits", str(base))
    client = browser("admin")
    submit(client, "/models/digits/default", {"version": "1"})
    submit(client, "/models/digits/label", {"label": "stable", "version": "1"})
    for path, more in (("default", {}), ("label", {"label": "stable"})):
        answer = submit(client, f"/models/digits/{path}", {"version": number, **more})
        assert answer.status_code == 400
    model = ServedModel.objects.get()
    assert model.default_version == 1
    assert model.labels.get().version.number == 1


@pytest.mark.parametrize("before", ["9" * 20, str(2**63), "x", "nan", "\u00b2"])
def test_a_page_link_that_is_damaged_says_so(browser: Callable[[str], Client], before: str) -> None:
    client = browser("admin")
    for path in ("audit", "jobs"):
        assert client.get(f"/{path}", {"before": before}).status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/models/%00",
        "/keys/a%00",
        "/jobs/%00",
        "/api/models/%00",
        "/api/keys/%00",
        "/api/jobs/a%00b",
        "/jobs?q=model:%00",
        "/jobs?before=1_%00",
        "/audit?q=%00",
        "/api/jobs?q=model:%00",
    ],
)
def test_a_nul_is_refused_before_the_database_receives_it(
    program: Client, browser: Callable[[str], Client], path: str
) -> None:
    client = program if path.startswith("/api/") else browser("admin")
    assert client.get(path).status_code == 400


def test_a_nul_in_a_form_is_refused_and_the_audit_still_takes_the_next_act(browser: Callable[[str], Client]) -> None:
    client = browser("admin")
    for path in ("/live/release", "/models/none/pause", "/settings/read-only"):
        assert submit(client, path, {"gpu": "g\0", "reason": "a\0b"}).status_code == 400
    assert submit(client, "/models/none/pause", {"reason": "why"}).status_code == 404
    assert AuditEntry.objects.get().reason == "why"
