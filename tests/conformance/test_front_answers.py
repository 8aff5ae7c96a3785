"""How a Tyk treats what the plugin answers, and what clients send: docs/tyk.md. The edge: ``tests/integration``."""

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conformance.conftest import Front
from tests.conformance.programs import FILES

pytestmark = pytest.mark.tyk
KINDS = ["tyk"]
JSON = {"Content-Type": "application/json"}
MIB = 1024 * 1024
LIMIT = json.loads((FILES / "tyk.conf").read_bytes())["http_server_options"]["max_request_body_size"]


def raw(url: str, request: bytes, *, until: bytes = b"") -> bytes:
    """Bytes in, bytes out, on a connection of its own. until: what the answer ends with; empty = the connection."""
    address = urlsplit(url)
    with socket.create_connection((str(address.hostname), address.port), timeout=60) as link:
        link.sendall(request)
        answer = b""
        while part := link.recv(65536):
            answer += part
            if until and answer.endswith(until):
                break
    return answer


def test_hello_answers_without_a_key(url: str) -> None:
    answer = httpx.get(url + "/hello", timeout=60)
    assert answer.status_code == 200
    assert answer.json() == {"status": "pass"}
    assert answer.headers["content-type"] == "application/json"
    head = httpx.head(url + "/hello", timeout=60)
    assert (head.status_code, head.content) == (200, b"")
    assert httpx.post(url + "/hello", timeout=60).status_code == 403


def test_refusal_of_the_auth_hook_arrives_exactly_as_written(front: Front) -> None:
    body = '{"error": "no key, «really»"}'
    answer = front.ask({"auth": {"status": 401, "body": body, "headers": JSON}})
    assert answer.status_code == 401
    assert answer.text == body
    assert answer.headers["content-type"] == "application/json"


def test_post_reply_arrives_with_status_headers_and_body(front: Front) -> None:
    headers = {**JSON, "Location": "/v1/jobs/7", "Retry-After": "2", "X-Two": "a, b"}
    answer = front.ask({"post": {"status": 202, "body": '{"id": 7}', "headers": headers}})
    assert answer.status_code == 202
    assert answer.json() == {"id": 7}
    for name, value in headers.items():
        assert answer.headers[name] == value


def test_reply_without_content_type_is_text(front: Front) -> None:
    answer = front.ask({"post": {"status": 200, "body": '{"a": 1}'}})
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("status", [204, 304])
def test_bodiless_statuses_have_no_body(front: Front, status: int) -> None:
    answer = front.ask({"post": {"status": status, "body": "x"}})
    assert (answer.status_code, answer.content) == (status, b"")
    assert "content-type" not in answer.headers


def test_head_gets_the_length_but_no_body(front: Front) -> None:
    answer = front.ask({"post": {"status": 200, "body": "hello"}}, method="HEAD")
    assert answer.content == b""
    assert answer.headers["content-length"] == "5"


def test_pipelined_requests_are_answered_in_order(front: Front) -> None:
    one = "GET /v1/{} HTTP/1.1\r\nHost: h\r\n{}\r\n"
    sent = one.format("a", "") + one.format("b", "") + one.format("c", "Connection: close\r\n")
    answer = raw(front.url, sent.encode()).decode()
    assert re.findall(r'"url": "(/v1/.)"', answer) == ["/v1/a", "/v1/b", "/v1/c"]


def test_error_without_override_error_is_wrapped_by_the_template(front: Front) -> None:
    answer = front.ask({"post": {"status": 422, "override_error": False, "body": 'bad "x" <y> & z\n'}})
    assert answer.status_code == 422
    assert answer.json() == {"error": 'bad "x" <y> & z\n'}
    assert answer.headers["content-type"] == "application/json"
    assert "x-generator" not in answer.headers


def test_template_follows_an_xml_request(front: Front) -> None:
    answer = front.ask(
        {"post": {"status": 422, "override_error": False, "body": "bad"}},
        headers={"Content-Type": "text/xml; charset=utf-8"},
    )
    assert answer.headers["content-type"] == "text/xml"
    assert answer.text.endswith("<error>bad</error>\n")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 429, 500, 503])
def test_error_with_override_error_is_verbatim(front: Front, status: int) -> None:
    body = json.dumps({"error": "Key not authorised", "status": status})
    problem = {"Content-Type": "application/problem+json"}
    answer = front.ask({"post": {"status": status, "body": body, "headers": problem}})
    assert (answer.status_code, answer.text) == (status, body)
    assert answer.headers["content-type"] == "application/problem+json"


def test_hooks_see_canonical_names_first_values_and_the_host(front: Front) -> None:
    address = urlsplit(front.url).netloc
    answer = front.client.get(
        front.url + "/v1/probe?a=1&a=2&b=x+y%21&c&d;e=1&f=%zz",
        headers=[("x-many", "first"), ("X-MANY", "second"), ("x_odd-name", "odd")],
    )
    seen = answer.json()["request"]
    assert seen["headers"]["X-Many"] == "first"
    assert seen["headers"]["X_odd-Name"] == "odd"
    assert seen["headers"]["Host"] == address
    assert seen["params"] == {"a": "1", "b": "x y!", "c": ""}
    assert (seen["method"], seen["scheme"]) == ("GET", "http")
    assert seen["return_overrides"] == {"response_code": -1}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/half_plus_two:predict",
        "/v1/models/m/versions/1:predict",
        "/v1/models/m/labels/stable/metadata",
        "/v1/models/a%2Fb:predict?x=1&y=%20z",
        "/v1/models/m/",
        "/v1/x?a;b",
        "/",
    ],
)
def test_path_reaches_post_unchanged(front: Front, path: str) -> None:
    seen = front.seen(path=path, method="POST")["request"]
    assert (seen["url"], seen["request_uri"]) == (path, path)


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("//v1//x?a=//b", "/v1/x?a=//b"),
        ("/v1/../x", "/x"),
        ("/v1/./x/", "/v1/x/"),
        ("/v1/%2e%2e/x%20y", "/x%20y"),
        ("/v1/x%2f%2Fy", "/v1/x/y"),
    ],
)
def test_unclean_path_is_redirected_before_any_hook(url: str, path: str, location: str) -> None:
    host = urlsplit(url).netloc
    answer = raw(url, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    head = answer.partition(b"\r\n\r\n")[0].decode()
    assert head.startswith("HTTP/1.1 301 ")
    assert f"location: {location}" in head.replace("Location:", "location:").splitlines()


def test_bad_escape_in_the_path_is_400(url: str) -> None:
    answer = raw(url, b"GET /v1/%zz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_header_that_is_not_utf8_is_never_taken_for_a_bad_key(front: Front) -> None:
    """A Tyk cannot tell its plugin of it."""
    for target, header in ((b"/v1/probe", b"\xff"), (b"/v1/probe?q=%e9", b"x")):
        answer = raw(
            front.url, b"GET %b HTTP/1.1\r\nHost: h\r\nX-Bad: %b\r\nConnection: close\r\n\r\n" % (target, header)
        )
        assert answer.startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (400, b"GET /v1/x HTTP/1.1\r\nHost: h\r\nHost: other\r\n\r\n"),
        (400, b"GET /v1/x HTTP/1.1\r\n\r\n"),
        (505, b"GET /v1/x HTTP/2.0\r\nHost: h\r\n\r\n"),
        (501, b"POST /v1/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ],
)
def test_what_has_two_meanings_or_none_is_refused(url: str, status: int, request_: bytes) -> None:
    assert raw(url, request_).startswith(b"HTTP/1.1 %d " % status)


def test_a_client_that_offers_http2_has_its_body_read(front: Front) -> None:
    """``curl --http2`` and Java's HttpClient offer it with each request. A Tyk takes it, the edge ignores it."""
    curl = shutil.which("curl")
    if curl is None or b"HTTP2" not in subprocess.run([curl, "-V"], capture_output=True, check=True, timeout=60).stdout:
        pytest.skip("needs a curl that knows HTTP/2")
    sent = ["--http2", "--data-binary", "@-", "-H", "X-Probe: {}", "-H", "Content-Type: application/json"]
    ask = [curl, "-sS", *sent, f"{front.url}/v1/probe"]
    answer = subprocess.run(ask, input=bytes(1000), capture_output=True, check=True, timeout=60).stdout
    assert json.loads(answer)["size"] == 1000


def test_trailers_become_no_headers(front: Front) -> None:
    answer = raw(
        front.url,
        b"POST /v1/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"1\r\nx\r\n0\r\nX-Evil: yes\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert "X-Evil" not in json.loads(answer.partition(b"\r\n\r\n")[2])["request"]["headers"]


def test_header_values_are_trimmed(front: Front) -> None:
    answer = raw(front.url, b"GET /v1/x HTTP/1.1\r\nHost: h\r\nX-P:  a b \t\r\nConnection: close\r\n\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["request"]["headers"]["X-P"] == "a b"


@pytest.mark.parametrize("mib", [3, 6, 20, 31])
def test_body_arrives_intact_and_only_once(front: Front, mib: int) -> None:
    body = os.urandom(mib * MIB)
    seen = front.seen(method="POST", content=body)
    assert (seen["size"], seen["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    assert seen["sent_text"] == ""


def test_chunked_body_arrives_intact(front: Front) -> None:
    parts = [os.urandom(70_000) for _ in range(5)]
    seen = front.seen(method="POST", content=iter(parts))
    assert seen["sha256"] == hashlib.sha256(b"".join(parts)).hexdigest()
    assert "Transfer-Encoding" not in seen["request"]["headers"]


@pytest.mark.parametrize("is_chunked", [False, True])
def test_body_above_the_limit_is_413_and_post_is_not_called(front: Front, is_chunked: bool) -> None:
    tag = f"too-large-{is_chunked}"
    most = LIMIT // MIB
    body = iter([b"x" * MIB] * most + [b"x"]) if is_chunked else b"x" * (LIMIT + 1)
    answer = front.ask({"tag": tag}, method="POST", content=body)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert front.seen({"tag": tag})["calls"] == {"auth": 1, "post": 1}


@pytest.mark.parametrize(
    ("content_type", "size"),
    [
        ("application/x-www-form-urlencoded", 10 * MIB + 1),
        ("application/x-www-form-urlencoded; charset=utf-8", MIB - 1),
        ("application/json", 11 * MIB),
    ],
)
def test_large_body_that_calls_itself_a_form_is_cut(front: Front, content_type: str, size: int) -> None:
    body = b"x" * (11 * MIB)
    seen = front.seen(method="POST", content=body, headers={"Content-Type": content_type})
    assert seen["size"] == size
    assert seen["request"]["headers"]["Content-Length"] == str(len(body))


def test_post_hook_learns_client_address_and_a_fresh_request_id(front: Front) -> None:
    mine = {"X-Request-Id": "mine", "X-Client-Addr": "6.6.6.6"}
    first = front.seen(headers=mine)["request"]["headers"]
    second = front.seen(headers=mine)["request"]["headers"]
    assert first["X-Client-Addr"] == "127.0.0.1"
    assert first["X-Request-Id"] not in {"mine", second["X-Request-Id"]}
    forwarded = front.seen(headers={"X-Forwarded-For": "5.6.7.8, 9.9.9.9"})["request"]["headers"]
    assert forwarded["X-Client-Addr"] == "5.6.7.8"


def test_forwarded_addresses_in_one_line_reach_the_hooks_whole(front: Front) -> None:
    reported = "10.0.0.1, 192.0.2.7"
    seen = front.seen(headers={"X-Forwarded-For": reported})["request"]["headers"]
    assert seen["X-Forwarded-For"] == reported


def test_of_two_lines_of_forwarded_addresses_tyk_shows_only_the_client_s_own(front: Front) -> None:
    """So a proxy before Tyk must write one line (docs/tyk.md)."""
    lines = [("X-Forwarded-For", "10.0.0.1"), ("X-Forwarded-For", "192.0.2.7")]
    answer = front.client.get(front.url + "/v1/probe", headers=lines)
    reported = answer.json()["request"]["headers"]["X-Forwarded-For"]
    assert reported == "10.0.0.1"


def test_headers_changed_by_the_auth_hook_are_seen_by_post(front: Front) -> None:
    probe = {"auth": {"set_headers": {"x-plan": "gold"}, "delete_headers": ["X-Secret"]}}
    headers = front.seen(probe, headers={"X-Secret": "s", "X-Plan": "lead"})["request"]["headers"]
    assert headers["X-Plan"] == "gold"
    assert "X-Secret" not in headers


def test_session_of_the_auth_hook_reaches_post(front: Front) -> None:
    seen = front.seen({"auth": {"id": "k-session", "session": {"alias": "robot"}}})
    assert seen["session"]["alias"] == "robot"
    assert seen["session"]["key_id"] == seen["session"]["metadata"]["token"]
    assert seen["metadata"] == seen["session"]["metadata"]
    assert seen["spec"]["APIID"] == "signalbox"
    assert (seen["hook_type"], seen["hook_name"]) == ("Post", "SignalboxPost")


@pytest.mark.parametrize(
    ("probe", "status", "code"),
    [
        ({"auth": {"raises": True}}, 503, "unavailable"),
        ({"auth": {"no_session": True}}, 503, "unavailable"),
        ({"post": {"raises": True}}, 503, "ambiguous"),
        ({"post": {"passes": True}}, 503, "unavailable"),
        ({"auth": {"session": {"is_inactive": True}}}, 403, "forbidden"),
        ({"auth": {"session": {"expires": 1}}}, 401, "unauthorized"),
        ({"auth": {"apis": ["another"]}}, 403, "forbidden"),
    ],
)
def test_errors_of_the_front_itself_have_our_shape(
    front: Front, probe: dict[str, object], status: int, code: str
) -> None:
    answer = front.ask(probe)
    assert answer.status_code == status
    document = answer.json()
    assert (document["code"], document["status"]) == (code, status)
    assert document["error"] == document["detail"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers.get("retry-after") == ("1" if status == 503 else None)


def test_key_allowed_on_this_api_passes(front: Front) -> None:
    assert front.ask({"auth": {"apis": ["signalbox", "another"]}}).status_code == 200
