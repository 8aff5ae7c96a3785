"""Paths, preferences and credentials: pure functions of what the client sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.api.answers import Preference, preference
from gateway_plugin.api.jobs import paths as jobpaths
from gateway_plugin.api.tfserving.paths import Operation, Route, is_serving, route_of
from gateway_plugin.hooks.auth import credential, session_of
from signalbox.program.errors import InvalidRequest, MethodNotAllowed, NotFound
from signalbox.wire.keydocs import ApiKey


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/v1/models/m:predict", Route(Operation.PREDICT, "m")),
        ("POST", "/V1/MODELS/m/VERSIONS/3:predict", Route(Operation.PREDICT, "m", 3)),
        ("POST", "/v1/models/m/labels/blue:predict", Route(Operation.PREDICT, "m", None, "blue")),
        ("POST", "/v1/models/a%20b:predict", Route(Operation.PREDICT, "a b")),
        ("GET", "/v1/models/m/metadata", Route(Operation.METADATA, "m")),
        ("GET", "/v1/models/m/versions/3", Route(Operation.STATUS, "m", 3)),
        ("POST", "/v1/models/m:classify", Route(Operation.CLASSIFY, "m")),
        ("POST", "/v1/models/m/versions/3:regress", Route(Operation.REGRESS, "m", 3)),
        ("GET", "/V1/Models/m/METADATA", Route(Operation.STATUS, "m")),
        ("GET", "/v1/models/metadata", Route(Operation.STATUS, "metadata")),
        ("GET", "/v1/models/m/labels/blue/metadata", Route(Operation.METADATA, "m", None, "blue")),
        ("GET", "/monitoring/prometheus/metrics", Route(Operation.METRICS)),
        ("OPTIONS", "/v1/models/m:predict", Route(Operation.PREFLIGHT)),
        ("GET", "/v1/models", Route(Operation.LIST_MODELS)),
    ],
)
def test_paths_lead_where_they_should(method: str, path: str, expected: Route) -> None:
    assert is_serving(path[:32])
    assert route_of(method, path) == expected
    assert route_of(method, path) == expected


@pytest.mark.parametrize("path", ["/v1/queues/a", "/v1/queues/a/sink?_watch_=true", "/v1/files", "/v1/batches/b"])
def test_what_is_another_dialect_s_is_not_servings(path: str) -> None:
    assert not is_serving(path[:32])


@pytest.mark.parametrize(
    ("method", "path", "operation", "job_id"),
    [
        ("POST", "/v1/jobs", jobpaths.Operation.SUBMIT, ""),
        ("GET", "/v1/jobs", jobpaths.Operation.LIST, ""),
        ("HEAD", "/v1/jobs", jobpaths.Operation.LIST, ""),
        ("POST", "/v1/predict", jobpaths.Operation.SUBMIT, ""),
        ("GET", "/v1/jobs/7", jobpaths.Operation.READ, "7"),
        ("HEAD", "/v1/jobs/7", jobpaths.Operation.READ, "7"),
        ("PATCH", "/v1/jobs/7", jobpaths.Operation.CHANGE, "7"),
        ("DELETE", "/v1/jobs/7", jobpaths.Operation.DELETE, "7"),
        ("POST", "/v1/jobs/7/cancel", jobpaths.Operation.CANCEL, "7"),
        ("GET", "/v1/jobs/7/result", jobpaths.Operation.RESULT, "7"),
        ("GET", "/v1/jobs/7/events", jobpaths.Operation.EVENTS, "7"),
        ("POST", "/v1/jobs/7/retry", jobpaths.Operation.RETRY, "7"),
        ("POST", "/v1/jobs/cancel", jobpaths.Operation.CANCEL_MANY, ""),
        ("POST", "/v1/jobs/retry", jobpaths.Operation.RETRY_MANY, ""),
        ("POST", "/v1/jobs/delete", jobpaths.Operation.DELETE_MANY, ""),
    ],
)
def test_paths_of_jobs_lead_where_they_should(
    method: str, path: str, operation: jobpaths.Operation, job_id: str
) -> None:
    assert not is_serving(path)
    assert not is_serving("/v1/queues/chat/sink?_watch_=true"[:32])
    assert jobpaths.route_of(method, path) == (operation, job_id)


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/v1/models/m:PREDICT", InvalidRequest),
        ("POST", "/v1/models/m/versions/x:predict", InvalidRequest),
        ("POST", f"/v1/models/m/versions/{2**63}:predict", InvalidRequest),
        ("POST", "/v1/models/m:train", InvalidRequest),
        ("GET", "/v1/models/m:predict", InvalidRequest),
        ("HEAD", "/v1/models/m", InvalidRequest),
        ("DELETE", "/v1/models/m", InvalidRequest),
        ("POST", "/v1/models/m/metadata", InvalidRequest),
        ("GET", "/v1/models/", InvalidRequest),
        ("GET", "/v1/models/versions/3", InvalidRequest),
        ("GET", "/v1/models/a/b", InvalidRequest),
        ("POST", "/v1/models/m/versions/3/labels/x:predict", InvalidRequest),
        ("GET", "/v1/nothing", InvalidRequest),
        ("GET", "/v1/model\u017f/m", InvalidRequest),
        ("GET", "/v1/predict", MethodNotAllowed),
        ("PUT", "/v1/jobs/7", MethodNotAllowed),
        ("GET", "/v1/jobs/7/cancel", MethodNotAllowed),
        ("GET", "/", NotFound),
        ("GET", "/v1/jobs/7/else", NotFound),
        ("GET", "/admin", NotFound),
    ],
)
def test_other_paths_are_refused_by_kind(method: str, path: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        (route_of if is_serving(path) else jobpaths.route_of)(method, path)


@given(st.sampled_from(["GET", "POST", "PUT", ""]), st.text(max_size=60))
def test_no_path_is_too_strange_to_be_refused_politely(method: str, path: str) -> None:
    try:
        route_of(method, f"/v1/models/{path}")
        jobpaths.route_of(method, path)
    except (InvalidRequest, NotFound):
        return


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Preference()),
        ("respond-async", Preference(is_async=True)),
        ("wait=10", Preference(wait_s=10.0)),
        ('Respond-Async, wait = "5"', Preference(is_async=True, wait_s=5.0)),
        ("wait=-1, return=minimal", Preference()),
        ("wait=99999999999", Preference()),
    ],
)
def test_preferences_are_read_and_unknown_ones_ignored(text: str, expected: Preference) -> None:
    assert preference(text) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Authorization": "Bearer K"}, "K"),
        ({"Authorization": "bearer  K "}, "K"),
        ({"Authorization": "K"}, "K"),
        ({"X-Api-Key": " K "}, "K"),
        ({"Authorization": "Bearer K", "X-Api-Key": "other"}, "K"),
        ({}, ""),
    ],
)
def test_a_key_is_found_in_either_header(headers: dict[str, str], expected: str) -> None:
    assert credential(headers) == expected


def test_keys_that_differ_only_at_their_end_have_different_tokens() -> None:
    tokens = {
        session_of(ApiKey(id=f"abcdefghijk{end}", account_id="k", hmac=""), "signalbox").metadata["token"]
        for end in "0123456789"
    }
    assert len(tokens) == 10


def test_an_unlimited_key_has_no_quota_and_no_rate() -> None:
    session = session_of(ApiKey(id="k", account_id="k", hmac=""), "signalbox")
    assert (session.rate, session.quota_max, session.expires, session.per) == (0, -1, 0, 1)


@pytest.mark.parametrize("digits", [20, 4_301, 60_000])
def test_a_version_of_ever_so_many_digits_is_no_number(digits: int) -> None:
    with pytest.raises(InvalidRequest, match="to numeric"):
        route_of("GET", f"/v1/models/half/versions/{'9' * digits}")


def test_leading_zeros_and_digits_of_other_scripts() -> None:
    assert route_of("GET", f"/v1/models/half/versions/{'0' * 5_000}7").version == 7
    assert route_of("GET", "/v1/models/half/versions/000").version == 0
    with pytest.raises(InvalidRequest):
        route_of("GET", "/v1/models/half/versions/\u0661")
