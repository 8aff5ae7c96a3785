"""What goes on to the upstream behind the auth hook alone, over HTTP."""

import hashlib
import json
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conformance.conftest import Front, FrontMaker
from tests.conformance.test_front_answers import raw

pytestmark = pytest.mark.tyk
KINDS = ["tyk"]
INFER = "/v2/models/m/infer"
MIB = 1024 * 1024


def ask(
    front: Front,
    probe: dict[str, Any] | None = None,
    upstream: dict[str, Any] | None = None,
    *,
    path: str = INFER,
    **more: Any,
) -> httpx.Response:
    """One request whose auth hook does what ``probe`` says, and whose upstream what ``upstream`` says."""
    headers = {"X-Upstream": json.dumps(upstream or {}), **more.pop("headers", {})}
    return front.ask(probe, method=more.pop("method", "POST"), path=path, headers=headers, **more)


def values(answer: httpx.Response, name: str) -> list[str]:
    """What the upstream saw under a name, in whatever spelling."""
    return [value for key, value in answer.json()["headers"] if key.lower().replace("_", "-") == name]


@pytest.mark.parametrize("path", ["/v2", INFER, "/v2/models/a%2Fb/ready?x=%20&y=1", "/v2/health/ready"])
def test_the_upstream_answers_in_its_own_words(front: Front, path: str) -> None:
    answer = ask(front, path=path, method="GET")
    assert (answer.status_code, answer.json()["url"]) == (200, path)
    assert answer.headers["x-own"] == "yes"


def test_it_gets_the_callers_own_credential_and_nothing_can_take_it_away(front: Front) -> None:
    headers = {"Authorization": "Bearer mine", "Connection": "close, Authorization, X-Api-Key", "X-Api-Key": "k"}
    answer = ask(front, headers=headers)
    assert values(answer, "authorization") == ["Bearer mine"]
    assert values(answer, "x-api-key") == ["k"]


def test_names_that_only_look_like_the_credentials_are_gone(front: Front) -> None:
    answer = ask(front, headers={"X-Api-Key": "mine", "X_Api_Key": "forged"})
    assert values(answer, "x-api-key") == ["mine"]


def test_it_learns_the_address_from_the_front(front: Front) -> None:
    answer = ask(front, headers={"X-Client-Addr": "6.6.6.6", "X-Request-Id": "mine"})
    assert values(answer, "x-client-addr") == ["127.0.0.1"]
    assert values(answer, "x-forwarded-for") == ["127.0.0.1"]
    (request_id,) = values(answer, "x-request-id")
    assert len(request_id) == 36
    forwarded = ask(front, headers={"X-Forwarded-For": "5.6.7.8"})
    assert values(forwarded, "x-forwarded-for") == ["5.6.7.8, 127.0.0.1"]


@pytest.mark.parametrize("connection", ["Upgrade", "keep-alive, Upgrade"])
def test_a_websocket_is_asked_for_whatever_else_the_browser_says(front: Front, connection: str) -> None:
    answer = raw(
        front.url,
        f"GET /v2/x HTTP/1.1\r\nHost: {urlsplit(front.url).netloc}\r\nConnection: {connection}\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n\r\n".encode(),
        until=b"}",
    )
    seen = {name.lower(): value for name, value in json.loads(answer.partition(b"\r\n\r\n")[2])["headers"]}
    assert (seen["connection"], seen["upgrade"]) == ("Upgrade", "websocket")


def test_a_refused_key_gets_the_dialects_error_and_the_upstream_receives_nothing(front: Front) -> None:
    tag = f"refused-{uuid.uuid4()}"
    answer = ask(front, {"auth": {"refuses": "no key, «really»"}}, {"tag": tag})
    assert (answer.status_code, answer.json()) == (401, {"error": "no key, «really»"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert ask(front, None, {"tag": tag}).json()["calls"] == 1


@pytest.mark.parametrize(
    "path", ["/v2/health/live", "/v2/models/m/ready", "/v2/models/m%20n/ready?x=1", "/v2/models/m/versions/1/ready"]
)
def test_health_is_told_to_anybody(front: Front, path: str) -> None:
    answer = ask(front, {"auth": {"refuses": "no key"}}, path=path, method="GET")
    assert answer.json()["url"] == path
    head = ask(front, {"auth": {"refuses": "no key"}}, path=path, method="HEAD")
    assert (head.status_code, head.content) == (answer.status_code, b"")


@pytest.mark.parametrize(
    "path", ["/v2/models/ready", "/v2/models/a%2Fb/ready", "/v2/models/m/infer/ready", "/v2/ready"]
)
def test_what_only_looks_like_health_wants_a_key(front: Front, path: str) -> None:
    assert ask(front, {"auth": {"refuses": "no key"}}, path=path, method="GET").status_code == 401


def test_the_rate_of_a_key_is_one_over_hooks_and_upstream(front: Front) -> None:
    auth = {"id": f"k-{uuid.uuid4()}", "session": {"rate": 4, "per": 60, "last_updated": "1"}}
    answers = []
    for _ in range(2):
        answers += [ask(front, {"auth": auth}), front.ask({"auth": auth})]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["3", "2", "1", "0"]
    tag = f"rate-{uuid.uuid4()}"
    refused = ask(front, {"auth": auth}, {"tag": tag})
    assert (refused.status_code, refused.json()["code"]) == (429, "limit_exceeded")
    assert "x-own" not in refused.headers
    assert ask(front, None, {"tag": tag}).json()["calls"] == 1


def test_the_quota_of_a_key_counts_there_too(front: Front) -> None:
    auth = {"id": f"k-{uuid.uuid4()}", "session": {"quota_max": 2, "quota_renewal_rate": 600}}
    statuses = [ask(front, {"auth": auth}).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, "Session state is missing"),
        (401, "Key has expired, please renew"),
        (403, "Key not authorised"),
        (403, "Quota exceeded"),
        (404, '{"error": "no such model"}'),
        (413, '{"error": "too large"}'),
        (429, "Rate Limit Exceeded"),
        (500, "Internal Server Error"),
        (500, "Middleware error"),
        (500, "There was a problem proxying the request"),
        (503, '{"error": "cannot"}'),
        (504, "Upstream service reached hard timeout."),
    ],
)
def test_what_the_upstream_refuses_passes_untouched_even_in_the_gateways_words(
    front: Front, status: int, body: str
) -> None:
    answer = ask(front, None, {"status": status, "body": body})
    assert (answer.status_code, answer.text, answer.headers["content-type"]) == (status, body, "text/plain")


@pytest.mark.parametrize(("mib", "is_chunked"), [(30, False), (30, True), (64, False)])
def test_a_large_body_arrives_intact(front: Front, mib: int, is_chunked: bool) -> None:
    body = os.urandom(mib * MIB)
    sent = iter([body[at : at + MIB] for at in range(0, len(body), MIB)]) if is_chunked else body
    answer = ask(front, content=sent, headers={"Content-Type": "application/octet-stream"})
    assert answer.json()["size"] == len(body)
    assert answer.json()["sha256"] == hashlib.sha256(body).hexdigest()


def test_a_dead_upstream_is_503_with_retry_after_and_the_hooks_answer_on(new_front: FrontMaker) -> None:
    with new_front() as front:
        assert front.upstream is not None
        assert ask(front).status_code == 200
        front.upstream.kill()
        for _ in range(3):
            refused = ask(front)
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
            assert refused.headers["retry-after"] == "1"
            assert front.ask().status_code == 200
        front.upstream.start()
        assert ask(front).status_code == 200


def test_an_upstream_killed_in_mid_call_does_not_claim_that_nothing_was_accepted(new_front: FrontMaker) -> None:
    with new_front() as front, ThreadPoolExecutor(1) as pool:
        assert front.upstream is not None
        sent = pool.submit(ask, front, None, {"wait": True})
        with httpx.Client(timeout=60) as client:
            headers = {"X-Upstream": json.dumps({"was_waiting": True})}
            assert client.get(front.url + "/v2/x", headers=headers).status_code == 200
        front.upstream.kill()
        refused = sent.result(30)
    assert (refused.status_code, refused.json()["code"]) == (503, "ambiguous")


def test_a_dead_plugin_is_503_there_too(new_front: FrontMaker) -> None:
    with new_front() as front:
        assert ask(front).status_code == 200
        front.plugin.kill()
        refused = ask(front)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert ask(front, path="/v2/health/live").status_code == 200


EVENTS = "/v1/jobs/some/events"


def streamed(front: Front, events: int) -> list[str]:
    """The lines of a stream of so many events, as each came; the last may be that of a break."""
    lines: list[str] = []
    headers = {"X-Upstream": json.dumps({"events": events}), "X-Probe": "{}"}
    with front.client.stream("GET", front.url + EVENTS, headers=headers) as answer:
        assert answer.status_code == 200
        try:
            lines.extend(filter(None, answer.iter_lines()))
        except httpx.RemoteProtocolError:
            lines.append("broken")
    return lines


def in_a_second(files: Path, **http: int) -> None:
    """Have every timeout of a gateway's files pass after a second, but those of ``http_server_options``."""
    conf = json.loads((files / "tyk.conf").read_bytes())
    conf["proxy_default_timeout"] = 1
    conf["http_server_options"] |= http
    (files / "tyk.conf").write_text(json.dumps(conf))
    for path in (files / "apps").iterdir():
        path.write_text(path.read_text().replace('"300s"', '"1s"'))


def test_a_stream_goes_on_when_every_other_time_is_over(new_front: FrontMaker, files: Path) -> None:
    in_a_second(files)
    with new_front(files) as front:
        assert streamed(front, 6) == [*(f"data: {n}" for n in range(6)), "event: end", "data:"]
        late = ask(front, upstream={"wait": True})
    assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")


def test_write_timeout_alone_bounds_a_stream(new_front: FrontMaker, files: Path) -> None:
    in_a_second(files, write_timeout=2)
    with new_front(files) as front:
        lines = streamed(front, 20)
    assert lines[-1] == "broken"
    assert 2 <= len(lines) - 1 < 20


def test_events_come_when_they_are_sent(front: Front) -> None:
    headers = {"X-Upstream": json.dumps({"events": 1000}), "X-Probe": "{}"}
    with front.client.stream("GET", front.url + EVENTS, headers=headers) as answer:
        assert next(answer.iter_lines()) == "data: 0"
