"""Objects for the hooks, client addresses, header names."""

import uuid

import pytest

from gateway_plugin.edge.definition import load
from gateway_plugin.edge.requests import ObjectMaker, client_address, request_id
from gateway_plugin.edge.target import RequestTarget
from gateway_plugin.proto.coprocess_pb2 import HookType, Object
from gateway_plugin.service import request
from gateway_plugin.service.request import canonical, headers_of


@pytest.fixture(scope="module")
def maker() -> ObjectMaker:
    return ObjectMaker(load().hooked, 0)


def replied(maker: ObjectMaker) -> Object:
    """An auth object with a session, as the plugin gives it back."""
    made = maker.auth("POST", RequestTarget("/v1/x?a=1", "/v1/x?a=1"), {"Host": "h", "X-A": "1"})
    made.session.metadata["token"] = "t"
    return made


def test_names_take_go_s_form() -> None:
    assert canonical(b"x-api-key") == "X-Api-Key"
    assert canonical(b"X_ODD-name") == "X_odd-Name"
    assert canonical(b"x-a1b") == "X-A1b"


def test_names_without_bound_are_not_remembered() -> None:
    names = [b"x-%d-" % number + b"a" * 61 for number in range(3)]
    assert canonical(names[0]) == "X-0-A" + "a" * 60
    assert headers_of((name, b"1") for name in names).keys() == set(map(canonical, names))
    assert canonical(b"x-short") == "X-Short"
    assert b"x-short" in request._canonical_names
    assert not request._canonical_names.keys() & set(names)


def test_first_value_counts_and_padding_goes() -> None:
    assert headers_of([(b"x-a", b"1 \t"), (b"X-A", b"2")]) == {"X-A": "1"}


def test_a_value_that_is_not_utf8_is_latin_1_and_no_fault() -> None:
    lines = [
        (b"x-a", b"caf\xe9 "),
        (b"x-b", "café".encode()),
        (b"x-forwarded-for", b"\xff"),
        (b"X-Forwarded-For", b"1"),
    ]
    assert headers_of(lines) == {"X-A": "café", "X-B": "café", "X-Forwarded-For": "ÿ, 1"}


def test_all_lines_of_forwarded_addresses_count() -> None:
    lines = [(b"x-forwarded-for", b"10.0.0.1"), (b"host", b"h"), (b"X-Forwarded-For", b"5.6.7.8, 9.9.9.9")]
    assert headers_of(lines)["X-Forwarded-For"] == "10.0.0.1, 5.6.7.8, 9.9.9.9"


@pytest.mark.parametrize(
    ("headers", "depth", "address"),
    [
        ({}, 0, "10.0.0.1"),
        ({"X-Real-Ip": "1.2.3.4", "X-Forwarded-For": "5.6.7.8"}, 0, "1.2.3.4"),
        ({"X-Real-Ip": "nonsense"}, 0, "10.0.0.1"),
        ({"X-Forwarded-For": "5.6.7.8, 9.9.9.9"}, 0, "5.6.7.8"),
        ({"X-Forwarded-For": "5.6.7.8, 9.9.9.9"}, 1, "9.9.9.9"),
        ({"X-Forwarded-For": "5.6.7.8, 9.9.9.9"}, 3, ""),
        ({"X-Forwarded-For": "bad, 9.9.9.9"}, 0, "10.0.0.1"),
        ({"X-Real-Ip": "::ffff:1.2.3.4"}, 0, "1.2.3.4"),
        ({"X-Real-Ip": "2001:DB8::1"}, 0, "2001:db8::1"),
    ],
)
def test_client_address_is_believed_as_tyk_believes_it(headers: dict[str, str], depth: int, address: str) -> None:
    assert client_address(headers, "10.0.0.1", depth) == address


def test_request_ids_are_random_uuids() -> None:
    made = {request_id() for _ in range(1000)}
    assert len(made) == 1000
    assert {uuid.UUID(text).version for text in made} == {4}
    assert {uuid.UUID(text).variant for text in made} == {uuid.RFC_4122}


def test_auth_object_holds_what_tyk_sends(maker: ObjectMaker) -> None:
    made = maker.auth("POST", RequestTarget("/v1/x?a=1&a=2", "/v1/x?a=1&a=2"), {"Host": "h"})
    assert (made.hook_type, made.hook_name) == (HookType.CustomKeyCheck, "SignalboxAuth")
    assert dict(made.request.params) == {"a": "1"}
    assert made.request.return_overrides.response_code == -1
    assert not made.HasField("session")
    assert made.spec["APIID"] == "signalbox"


def test_two_requests_share_nothing(maker: ObjectMaker) -> None:
    first, second = replied(maker), replied(maker)
    first.request.headers["X-A"] = "changed"
    assert second.request.headers["X-A"] == "1"


def test_post_object_carries_session_and_changes(maker: ObjectMaker) -> None:
    auth = replied(maker)
    auth.request.set_headers["x-plan"] = "gold"
    auth.request.delete_headers.append("x-a")
    auth.request.return_overrides.headers["X-Left"] = "over"
    made = maker.post(auth, auth, "/v1/x?a=1", "10.0.0.1", b"\xff\x00")
    assert made.request.raw_body == b"\xff\x00"
    assert made.request.body == ""
    assert (made.hook_type, made.hook_name) == (HookType.Post, "SignalboxPost")
    assert made.request.headers["X-Plan"] == "gold"
    assert "X-A" not in made.request.headers
    assert made.request.headers["X-Client-Addr"] == "10.0.0.1"
    assert not made.request.set_headers
    assert not made.request.return_overrides.headers
    assert made.session.key_id == made.metadata["token"] == "t"


def test_reply_that_sends_the_request_elsewhere_is_refused(maker: ObjectMaker) -> None:
    auth = replied(maker)
    auth.request.url = "nonsense"
    with pytest.raises(ValueError, match="nonsense"):
        maker.post(auth, auth, "/v1/x?a=1", "", b"")
    auth = replied(maker)
    auth.request.add_params["b"] = "2"
    with pytest.raises(ValueError, match="parameters"):
        maker.post(auth, auth, "/v1/x?a=1", "", b"")
