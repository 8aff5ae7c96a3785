"""What the auth hook does with a request that goes on to the upstream, and how it refuses a gRPC call."""

import json
from urllib.parse import unquote

import pytest

from gateway_plugin.hooks.dispatcher import AUTH, UPSTREAM_AUTH, Dispatcher
from gateway_plugin.hooks.grpcrefusals import grpc_refusal
from gateway_plugin.hooks.handover import changes
from gateway_plugin.jsonresponses import JsonResponse
from gateway_plugin.proto.coprocess_pb2 import Object
from signalbox.program.errors import MEANINGS, LimitExceeded, SignalboxError, Unauthorized
from tests.rigs.dialects import DIALECTS

GRPC = {"Content-Type": "application/grpc+proto"}


def refuses(_: Object) -> None:
    raise Unauthorized("No key – really 100 %.")


def lets_in(obj: Object) -> None:
    obj.session.metadata["token"] = "t"


async def never(_: Object) -> JsonResponse:
    raise AssertionError


async def asked(auth: object, headers: dict[str, str], hook: str = UPSTREAM_AUTH, url: str = "/v2/x") -> Object:
    obj = Object(hook_name=hook)
    obj.request.url, obj.request.method, obj.request.raw_body = url, "POST", b"\0body"
    obj.request.headers.update(headers)
    obj.request.return_overrides.response_code = -1
    return await Dispatcher(auth, never, DIALECTS).dispatch(obj)  # type: ignore[arg-type]


def test_what_names_headers_to_be_dropped_is_dropped_itself() -> None:
    put, removed = changes({"Connection": "close, X-Client-Addr", "Authorization": "Bearer k"})
    assert (dict(put), removed) == ({}, ["Connection"])
    assert changes({"Authorization": "Bearer k"}) == ({}, [])


@pytest.mark.parametrize("connection", ["Upgrade", "keep-alive, Upgrade", "Upgrade, X-Api-Key"])
def test_a_websocket_is_asked_for_in_the_one_form_that_tyk_takes(connection: str) -> None:
    put, removed = changes({"Connection": connection, "Upgrade": "WebSocket"})
    assert (dict(put), removed) == ({"Connection": "Upgrade"}, [])


def test_names_with_underscores_are_dropped() -> None:
    assert changes({"X_api_key": "a", "X-Api-Key": "b", "My_own-Name": "c"}).removed == ["X_api_key", "My_own-Name"]


async def test_a_request_goes_on_whole_with_the_callers_own_credential() -> None:
    headers = {"Authorization": "Bearer k", "X_Api_Key": "other", "Connection": "keep-alive"}
    obj = await asked(lets_in, headers)
    assert obj.request.return_overrides.response_code == -1
    assert obj.request.raw_body == b"\0body"
    assert list(obj.request.delete_headers) == ["X_Api_Key", "Connection"]
    assert not obj.request.set_headers


async def test_the_hook_of_what_is_answered_here_changes_no_header() -> None:
    obj = await asked(lets_in, {"Connection": "close", "X_Api_Key": "a"}, AUTH)
    assert not obj.request.delete_headers
    assert not obj.request.set_headers


async def test_a_refused_grpc_call_is_told_why_in_headers_alone() -> None:
    overrides = (await asked(refuses, GRPC, url="/tensorflow.serving.PredictionService/Predict")).request
    given = overrides.return_overrides
    assert (given.response_code, given.override_error, given.response_body) == (200, False, "")
    assert given.headers["Content-Type"] == "application/grpc"
    assert given.headers["Grpc-Status"] == "16"
    assert given.headers["Grpc-Message"].isascii()
    assert unquote(given.headers["Grpc-Message"]) == "No key – really 100 %."


async def test_a_refused_http_request_gets_an_error_in_its_dialect() -> None:
    given = (await asked(refuses, {"Content-Type": "application/json"})).request.return_overrides
    assert (given.response_code, given.override_error) == (401, True)
    assert json.loads(given.response_body) == {"error": "No key – really 100 %."}
    assert given.headers["Www-Authenticate"] == "Bearer"


async def test_only_an_api_that_serves_grpc_answers_in_it() -> None:
    given = (await asked(refuses, GRPC, AUTH, "/v1/models")).request.return_overrides
    assert given.response_code == 401


def test_a_limit_of_a_grpc_call_says_when_to_come_back() -> None:
    headers = grpc_refusal(LimitExceeded("slow down", retry_after_s=2.5)).headers
    assert (headers["Grpc-Status"], headers["Retry-After"]) == ("8", "3")


@pytest.mark.parametrize("code", sorted(MEANINGS))
def test_every_error_has_a_number_in_grpc(code: str) -> None:
    grpc = pytest.importorskip("grpc")

    class Error(SignalboxError):
        """Any."""

    Error.code = code
    number = int(grpc_refusal(Error("x")).headers["Grpc-Status"])
    assert grpc.StatusCode[MEANINGS[code].grpc].value[0] == number
