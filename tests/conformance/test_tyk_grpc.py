"""gRPC through a real Tyk: the auth hook before an upstream over h2c."""

import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest

from tests.conformance.conftest import Front, FrontMaker

pytestmark = pytest.mark.tyk
KINDS = ["tyk"]
PREDICT = "/tensorflow.serving.PredictionService/Predict"
INFER = "/inference.GRPCInferenceService/ModelInfer"
HEALTH = "/grpc.health.v1.Health/Check"
MIB = 1024 * 1024
SIZES = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Caller:
    """A gRPC client of a front."""

    def __init__(self, front: Front) -> None:
        self._channel = grpc.insecure_channel(urlsplit(front.url).netloc, options=SIZES)

    def close(self) -> None:
        self._channel.close()

    def ask(
        self,
        probe: dict[str, Any] | None = None,
        upstream: dict[str, Any] | None = None,
        *,
        method: str = PREDICT,
        body: bytes = b"\0\xff",
        metadata: tuple[tuple[str, str], ...] = (),
        timeout_s: float = 60,
    ) -> dict[str, Any]:
        """What the upstream saw of one call. Raises :class:`grpc.RpcError`."""
        sent = (("x-probe", json.dumps(probe or {})), ("x-upstream", json.dumps(upstream or {})), *metadata)
        call = self._channel.unary_unary(method, request_serializer=bytes, response_deserializer=json.loads)
        seen: dict[str, Any] = call(body, timeout=timeout_s, metadata=sent)
        return seen

    def refused(self, *given: Any, **more: Any) -> tuple[str, str]:
        """Status and text of a call that must fail."""
        with pytest.raises(grpc.RpcError) as caught:
            self.ask(*given, **more)
        return caught.value.code().name, caught.value.details() or ""


@pytest.fixture
def caller(front: Front) -> Iterator[Caller]:
    made = Caller(front)
    yield made
    made.close()


def values(seen: dict[str, Any], name: str) -> list[str]:
    return [value for key, value in seen["headers"] if key.replace("_", "-") == name]


@pytest.mark.parametrize(
    "method", [PREDICT, "/tensorflow.serving.ModelService/GetModelStatus", "/tensorflow.serving.None2/X", INFER]
)
def test_a_call_reaches_the_upstream_with_the_callers_credential(caller: Caller, method: str) -> None:
    seen = caller.ask(method=method, metadata=(("authorization", "Bearer mine"), ("x_api_key", "forged")))
    assert seen["url"] == method
    assert values(seen, "authorization") == ["Bearer mine"]
    assert values(seen, "x-api-key") == []
    assert values(seen, "x-client-addr") == ["127.0.0.1"]
    assert seen["sha256"] == hashlib.sha256(b"\0\xff").hexdigest()


@pytest.mark.parametrize("method", [PREDICT, INFER])
def test_a_refused_key_is_told_in_grpc(caller: Caller, method: str) -> None:
    tag = f"refused-{uuid.uuid4()}"
    refused = caller.refused({"auth": {"refuses": "no key, «really»"}}, {"tag": tag}, method=method)
    assert refused == ("UNAUTHENTICATED", "no key, «really»")
    assert caller.ask(None, {"tag": tag})["calls"] == 1


@pytest.mark.parametrize("method", [PREDICT, INFER])
def test_a_call_above_the_rate_or_the_quota_is_told_in_grpc(caller: Caller, front: Front, method: str) -> None:
    auth = {"id": f"k-{uuid.uuid4()}", "session": {"rate": 2, "per": 60, "last_updated": "1"}}
    caller.ask({"auth": auth}, method=method)
    assert front.ask({"auth": auth}).status_code == 200
    status, text = caller.refused({"auth": auth}, method=method)
    assert (status, "rate limit" in text) == ("RESOURCE_EXHAUSTED", True)
    auth = {"id": f"k-{uuid.uuid4()}", "session": {"quota_max": 1, "quota_renewal_rate": 60}}
    caller.ask({"auth": auth}, method=method)
    status, text = caller.refused({"auth": auth}, method=method)
    assert (status, "quota" in text) == ("RESOURCE_EXHAUSTED", True)


@pytest.mark.parametrize(
    ("auth", "status"),
    [
        ({"session": {"is_inactive": True}}, "PERMISSION_DENIED"),
        ({"session": {"expires": 1}}, "UNAUTHENTICATED"),
        ({"apis": ["another"]}, "PERMISSION_DENIED"),
        ({"no_session": True}, "UNAVAILABLE"),
    ],
)
def test_what_tyk_says_by_itself_is_grpc_with_a_text(caller: Caller, auth: dict[str, Any], status: str) -> None:
    found, text = caller.refused({"auth": auth})
    assert found == status
    assert "API key" in text or "Try again" in text


@pytest.mark.parametrize("status", ["NOT_FOUND", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE"])
def test_what_the_upstream_refuses_passes_untouched(caller: Caller, status: str) -> None:
    assert caller.refused(None, {"abort": status, "body": "its «words»"}) == (status, "its «words»")


def test_a_method_that_the_upstream_does_not_have_is_unimplemented(caller: Caller) -> None:
    assert caller.refused(method="/tensorflow.serving.SessionService/None")[0] == "UNIMPLEMENTED"


@pytest.mark.parametrize("mib", [30, 64])
def test_a_large_message_arrives_intact(caller: Caller, mib: int) -> None:
    body = os.urandom(mib * MIB)
    seen = caller.ask(body=body)
    assert (seen["size"], seen["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())


def test_health_is_told_to_anybody(caller: Caller) -> None:
    assert caller.ask({"auth": {"refuses": "no key"}}, method=HEALTH)["url"] == HEALTH


def test_a_deadline_ends_the_call(caller: Caller) -> None:
    assert caller.refused(None, {"wait": True}, timeout_s=1)[0] == "DEADLINE_EXCEEDED"


def test_dead_upstream_and_dead_plugin_are_unavailable(new_front: FrontMaker) -> None:
    with new_front() as front:
        assert front.upstream is not None
        caller = Caller(front)
        caller.ask()
        front.upstream.kill()
        for method in (PREDICT, INFER):
            status, text = caller.refused(method=method)
            assert (status, "nothing was accepted" in text) == ("UNAVAILABLE", True)
        assert caller.refused(method=HEALTH)[0] == "UNAVAILABLE"
        front.upstream.start()
        caller.ask()
        front.plugin.kill()
        status, text = caller.refused()
        assert (status, "nothing was accepted" in text) == ("UNAVAILABLE", True)
        caller.close()
