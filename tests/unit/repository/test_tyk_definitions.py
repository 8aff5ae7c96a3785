"""The API definitions of ``tyk/apps`` say the same where they must, and nothing of an upstream's is rewritten."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gateway_plugin.hooks.dispatcher import AUTH, UPSTREAM_AUTH
from gateway_plugin.settings import GatewaySettings
from signalbox.program.errors import meaning

TYK = Path(__file__).resolve().parents[3] / "tyk"
CONF: dict[str, Any] = json.loads((TYK / "tyk.conf").read_bytes())
APIS: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_bytes()) for path in (TYK / "apps").iterdir()}
CHECKED = {name: api for name, api in APIS.items() if not api["use_keyless"]}
UPSTREAMS = {name: api for name, api in APIS.items() if "plugin:" in api["proxy"]["target_url"]}
GRPC = {name: api for name, api in CHECKED.items() if api["proxy"]["target_url"].startswith("h2c:")}
STREAMS = {
    "/v1/jobs/{id}/{read:result|events}",
    "/v1/{what:events|files|uploads|batches}",
    "/v1/queues/",
    "/api/predict/",
}
OF_ITS_OWN = {"name", "slug", "api_id", "proxy", "custom_middleware", "version_data", "error_overrides"}
UPSTREAM_S_FLAG = "URS"
"""The one flag that a rule for an upstream's own answers may have."""
GRPC_NUMBERS = {
    "DEADLINE_EXCEEDED": 4,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "UNAVAILABLE": 14,
    "UNAUTHENTICATED": 16,
}


def test_what_is_served_has_a_definition() -> None:
    found = {api["proxy"]["listen_path"]: api["proxy"]["target_url"] for api in UPSTREAMS.values()}
    assert found == {
        "/tensorflow.serving.": "h2c://plugin:9112",
        "/inference.GRPCInferenceService/": "h2c://plugin:9112",
        "/inference.GRPCInferenceService/Server": "h2c://plugin:9112",
        "/grpc.health.v1.Health/": "h2c://plugin:9112",
        "/v2": "http://plugin:9113",
        **dict.fromkeys(STREAMS, "http://plugin:9113"),
        "/v2/health/": "http://plugin:9113",
        "/v2/models/{model}/ready": "http://plugin:9113",
        "/v2/models/{model}/versions/{version}/ready": "http://plugin:9113",
    }


def test_each_has_a_name_of_its_own_on_the_one_port_and_in_the_one_organisation() -> None:
    for field in ("name", "slug", "api_id"):
        assert len({api[field] for api in APIS.values()}) == len(APIS)
    assert len({api["proxy"]["listen_path"] for api in APIS.values()}) == len(APIS)
    for field in ("listen_port", "org_id", "active"):
        assert len({api[field] for api in APIS.values()}) == 1


@pytest.mark.parametrize("name", sorted(set(CHECKED) - {"signalbox"}))
def test_what_goes_to_the_upstream_is_as_the_api_with_two_hooks_but_for_the_post_hook(name: str) -> None:
    api, model = CHECKED[name], CHECKED["signalbox"]
    assert {k: v for k, v in api.items() if k not in OF_ITS_OWN} == {
        k: v for k, v in model.items() if k not in OF_ITS_OWN
    }
    assert api["proxy"].keys() == model["proxy"].keys()
    assert model["custom_middleware"]["auth_check"] == {"name": AUTH, "raw_body_only": True}
    auth = {"name": UPSTREAM_AUTH, "raw_body_only": True}
    assert api["custom_middleware"] == {"driver": "grpc", "auth_check": auth}
    version = api["version_data"]["versions"]["Default"]
    timeout = {"global_enforce_timeout": "300s"} if api["proxy"]["listen_path"] not in STREAMS else {}
    assert version == model["version_data"]["versions"]["Default"] | timeout


def test_all_but_what_streams_is_given_up_in_time_though_the_gateway_lets_an_answer_go_on_for_a_day() -> None:
    """Tyk ends a running stream at an enforced timeout, as if it were complete. The hooks' calls have deadlines of the
    plugin's own, which answers them all by itself where there is no upstream.
    """
    assert CONF["http_server_options"]["write_timeout"] == 86_400
    timeouts = {
        api["proxy"]["listen_path"]: api["version_data"]["versions"]["Default"].get("global_enforce_timeout")
        for api in UPSTREAMS.values()
    }
    assert {timeouts.pop(path) for path in STREAMS} == {None}
    assert set(timeouts.values()) == {"300s"}
    assert {path for path in APIS if path not in UPSTREAMS} == {"signalbox", "hello"}


def test_only_health_and_what_is_answered_at_once_need_no_key() -> None:
    keyless = {api["proxy"]["listen_path"] for api in APIS.values() if api["use_keyless"]}
    assert keyless == {
        "/hello",
        "/grpc.health.v1.Health/",
        "/inference.GRPCInferenceService/Server",
        "/v2/health/",
        "/v2/models/{model}/ready",
        "/v2/models/{model}/versions/{version}/ready",
    }


def test_an_upstream_has_as_long_as_a_call_may_take_and_is_given_up_before_its_caller_is() -> None:
    longest_s = GatewaySettings(key_pepper="x").longest_call_s
    assert longest_s < CONF["proxy_default_timeout"] == 300 < CONF["http_server_options"]["write_timeout"]


def test_connections_to_an_upstream_are_kept_for_as_many_as_may_call_it_and_are_closed_by_tyk_first() -> None:
    settings = GatewaySettings(key_pepper="x")
    assert settings.max_waiting < CONF["max_idle_connections_per_host"] < settings.http_connections
    assert settings.http_idle_s > 90


def test_rules_for_errors_are_the_gateways_and_leave_an_upstreams_own_answers_alone() -> None:
    """Tyk tries a rule on an upstream's answer only where it has no flag, or this one."""
    assert {name for name, api in APIS.items() if "error_overrides" in api} == set(GRPC)
    for rules in (CONF["error_overrides"], *(api["error_overrides"] for api in GRPC.values())):
        flags = [rule["match"]["flag"] for of_status in rules.values() for rule in of_status]
        assert all(flags)
        assert UPSTREAM_S_FLAG not in flags


@pytest.mark.parametrize("name", sorted(GRPC))
def test_a_grpc_client_is_told_the_same_in_its_own_form(name: str) -> None:
    assert GRPC[name]["error_overrides"] == {
        status: [{"match": rule["match"], "response": in_grpc(rule["response"])} for rule in rules]
        for status, rules in CONF["error_overrides"].items()
    }


@pytest.mark.parametrize(
    ("status", "text", "flag", "code"),
    [
        (403, "Key not authorised", "", "unavailable"),
        (403, "Forbidden", "", "unavailable"),
        (500, "Middleware error", "", "ambiguous"),
        (500, "There was a problem proxying the request", "UCF", "unavailable"),
        (403, "Key is inactive, please renew", "", "forbidden"),
        (401, "Key has expired, please renew", "", "unauthorized"),
        (403, "Access to this API has been disallowed", "", "forbidden"),
        (429, "Rate Limit Exceeded", "RLT", "limit_exceeded"),
        (403, "Quota exceeded", "QEX", "limit_exceeded"),
    ],
)
def test_each_error_of_tyk_s_own_becomes_one_of_ours(status: int, text: str, flag: str, code: str) -> None:
    """An outage is never a bad key, and an interrupted answer does not claim that nothing was accepted."""
    rules = CONF["error_overrides"][str(status)]
    rule = next(
        one
        for one in rules
        if (flag and one["match"]["flag"] == flag) or re.search(one["match"]["message_pattern"], text)
    )
    given = rule["response"]
    doc, means = json.loads(given["body"]), meaning(code)
    assert (given["status_code"], doc["code"], doc["status"], doc["title"]) == (
        means.http,
        code,
        means.http,
        means.title,
    )


def test_every_override_has_the_status_and_shape_of_our_errors() -> None:
    for rule in (one for rules in CONF["error_overrides"].values() for one in rules):
        given = rule["response"]
        doc = json.loads(given["body"])
        means = meaning(doc["code"])
        assert (given["status_code"], doc["status"], doc["title"]) == (means.http, means.http, means.title)
        assert doc["error"] == doc["detail"]
        assert doc["type"] == f"urn:signalbox:error:{doc['code']}"
        assert given["headers"]["Content-Type"] == "application/json"
        assert ("Retry-After" in given["headers"]) == (means.http in {429, 503})


def test_every_folder_that_tyk_conf_names_is_there() -> None:
    assert named_folders(CONF) == {path.name for path in TYK.iterdir() if path.is_dir()}


def named_folders(conf: dict[str, Any]) -> set[str]:
    """Folders a configuration of Tyk's names, in whatever section."""
    inner = [named_folders(value) for value in conf.values() if isinstance(value, dict)]
    return {value for name, value in conf.items() if name.endswith("_path")}.union(*inner)


def test_what_a_hook_answers_is_decided_by_the_body_alone() -> None:
    for api in CHECKED.values():
        hooks = api["custom_middleware"]
        assert hooks["driver"] == "grpc"
        assert all(hook["raw_body_only"] for hook in (hooks["auth_check"], *hooks.get("post", ())))
        assert not api.get("strip_auth_data")
        assert not api["cache_options"]["enable_cache"]
        assert not api.get("CORS", {}).get("enable")
        assert "global_size_limit" not in api["version_data"]["versions"]["Default"]


def in_grpc(response: dict[str, Any]) -> dict[str, Any]:
    """The answer that has no body but says in its headers what an HTTP answer says in its body."""
    doc = json.loads(response["body"])
    headers = {
        "Content-Type": "application/grpc",
        "Grpc-Status": str(GRPC_NUMBERS[meaning(doc["code"]).grpc]),
        "Grpc-Message": quote(doc["error"], safe=" ;,.:"),
    }
    if "Retry-After" in response["headers"]:
        headers["Retry-After"] = response["headers"]["Retry-After"]
    nothing = "{{with .Nothing}}{{.}}{{end}}"  # without a body Tyk would write one by its own template
    return {"status_code": 200, "body": nothing, "headers": headers}


def test_the_plugin_takes_calls_of_all_of_them() -> None:
    taken = GatewaySettings(key_pepper="x").api_ids
    assert sorted(taken) == sorted(api["api_id"] for api in CHECKED.values())
