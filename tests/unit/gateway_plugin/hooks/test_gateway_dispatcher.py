"""An unforeseen error in a hook is our failure: told as one, without its text, logged and counted."""

import json

import pytest

from gateway_plugin.hooks.dispatcher import AUTH, GRPC, POST, UPSTREAM_AUTH, Dispatcher, Outcomes
from gateway_plugin.jsonresponses import JsonResponse
from gateway_plugin.proto.coprocess_pb2 import Object
from signalbox.program import log, metrics
from tests.rigs.dialects import DIALECTS


def breaks(_: Object) -> None:
    raise ZeroDivisionError("instances [4711]")


async def breaks_later(_: Object) -> JsonResponse:
    raise ZeroDivisionError("instances [4711]")


@pytest.mark.parametrize("field", ["config_data", "APIID", "OrgID"])
def test_long_specs_of_strangers_are_not_remembered_and_do_not_fill_the_log(
    field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dispatcher = Dispatcher(breaks, breaks_later, DIALECTS, secret="ours", apis=frozenset({"a"}))
    long = '{"secret": "ours", "more": "' + "x" * 5000 + '"}'
    assert dispatcher.trusts(Object(spec={"APIID": "a", "config_data": long}))
    for number in range(70):
        spec = {"APIID": "a", field: f'{{"secret": "{number}{"x" * 5000}"}}'}
        assert not dispatcher.trusts(Object(spec=spec))
    assert dispatcher.trusts(Object(spec={"APIID": "a", "config_data": '{"secret": "ours"}'}))
    assert dispatcher._judge_once.cache_info().currsize == 1
    assert capsys.readouterr().err.count("caller_refused") == 64


@pytest.mark.parametrize("hook", [AUTH, POST])
async def test_an_error_nobody_foresaw_is_a_500_that_says_nothing_and_is_counted(
    hook: str, capsys: pytest.CaptureFixture[str]
) -> None:
    counter = log.UNFORESEEN.labels("gateway.request_failed")
    before = counter._value.get()
    obj = Object(hook_name=hook)
    obj.request.url = "/v1/jobs"
    assert await Dispatcher(breaks, breaks_later, DIALECTS).dispatch(obj) is obj
    overrides = obj.request.return_overrides
    assert (overrides.response_code, overrides.override_error) == (500, True)
    assert json.loads(overrides.response_body)["code"] == "internal"
    assert "4711" not in overrides.response_body
    assert counter._value.get() == before + 1
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "gateway.request_failed"


def test_requests_and_failures_are_counted_under_tfservingcache_s_names_once_each() -> None:
    def counted() -> list[float]:
        names = [f"tfservingcache_proxy_{kind}_total" for kind in ("requests", "failures")]
        return [
            metrics.REGISTRY.get_sample_value(name, {"protocol": protocol}) or 0.0
            for name in names
            for protocol in ("rest", "grpc")
        ]

    before, outcomes = counted(), Outcomes()
    for hook, status in [
        (AUTH, 0),
        (POST, 200),
        (AUTH, 401),
        (UPSTREAM_AUTH, 0),
        ("upstream", 503),
        ("edge", 404),
        (GRPC, 0),
        (GRPC, 503),
    ]:
        outcomes.count(hook, status)
    assert [after - was for after, was in zip(counted(), before, strict=True)] == [4, 2, 1, 1]
