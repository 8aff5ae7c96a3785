"""The gateway's files as the edge reads them, and what it refuses to read."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway_plugin.edge import gatewayerrors as errors
from gateway_plugin.edge import responses
from gateway_plugin.edge.definition import SOURCE, load
from gateway_plugin.edge.gatewayerrors import GatewayError
from gateway_plugin.edge.requests import ObjectMaker
from gateway_plugin.edge.responses import ErrorTemplates
from gateway_plugin.edge.target import RequestTarget
from signalbox.program.errors import MEANINGS, Misconfigured

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    copied = tmp_path / "tyk"
    shutil.copytree(SOURCE, copied)
    return copied


def changed(files: Path, change: Change, file: str = "apps/signalbox.json") -> Path:
    path = files / file
    doc = json.loads(path.read_bytes())
    change(doc)
    path.write_text(json.dumps(doc))
    return files


def named_folders(conf: dict[str, Any]) -> set[str]:
    """Folders a configuration of Tyk's names, in whatever section."""
    inner = [named_folders(value) for value in conf.values() if isinstance(value, dict)]
    return {value for name, value in conf.items() if name.endswith("_path")}.union(*inner)


def test_every_folder_that_tyk_conf_names_is_there() -> None:
    named = named_folders(json.loads((SOURCE / "tyk.conf").read_bytes()))
    assert named == {path.name for path in SOURCE.iterdir() if path.is_dir()}


def test_files_of_the_repository_are_read() -> None:
    front = load()
    assert front.hooked.api_id == "signalbox"
    assert front.max_body_bytes == 72 * 1024 * 1024
    assert front.shows_rate
    assert [api.listen_path for api in front.keyless] == ["/hello"]
    assert {api.listen_path: (api.is_grpc, api.checked is None) for api in front.upstreams} == {
        "/inference.GRPCInferenceService/": (True, False),
        "/inference.GRPCInferenceService/Server": (True, True),
        "/grpc.health.v1.Health/": (True, True),
        "/tensorflow.serving.": (True, False),
        "/v2/health/": (False, True),
        "/v2/models/{model}/ready": (False, True),
        "/v2/models/{model}/versions/{version}/ready": (False, True),
        "/v2": (False, False),
    }


def test_the_longest_path_comes_first_so_that_health_needs_no_key() -> None:
    paths = [api.listen_path for api in load().upstreams]
    assert paths[-1] == "/v2"


def test_a_named_segment_counts_nothing_in_the_order_of_paths(files: Path) -> None:
    """As in Tyk's own ``listenPathLength``."""
    long = changed(files, lambda doc: doc["proxy"].update(listen_path="/v2/{anything}/"), "apps/inference-health.json")
    assert [api.listen_path for api in load(long).upstreams][-2:] == ["/v2/{anything}/", "/v2"]


@pytest.mark.parametrize(
    "change",
    [
        lambda doc: doc.update(strip_auth_data=True),
        lambda doc: doc.update(response_processors=[]),
        lambda doc: doc["proxy"].update(listen_path="/api/"),
        lambda doc: doc["CORS"].update(enable=True),
        lambda doc: doc["cache_options"].update(enable_cache=True),
        lambda doc: doc["custom_middleware"]["auth_check"].pop("raw_body_only"),
        lambda doc: doc["custom_middleware"].update(response=[{"name": "X"}]),
        lambda doc: doc["custom_middleware"]["post"].append({"name": "Y", "raw_body_only": True}),
        lambda doc: doc["version_data"]["versions"]["Default"].update(global_size_limit=1),
        lambda doc: doc.update(error_overrides={}),
        lambda doc: doc.update(use_keyless=True),
    ],
)
def test_what_the_edge_does_not_do_is_refused_by_name(files: Path, change: Change) -> None:
    with pytest.raises(Misconfigured, match=r"edge|apps"):
        load(changed(files, change))


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("tyk.conf", lambda doc: doc["error_overrides"]["403"][0]["match"].pop("flag")),
        ("tyk.conf", lambda doc: doc["error_overrides"]["403"][0]["match"].update(body_field="error")),
        ("tyk.conf", lambda doc: doc["error_overrides"]["403"][0]["response"].update(body="{{.Message}}")),
        ("apps/inference.json", lambda doc: doc.update(error_overrides={})),
        ("apps/inference.json", lambda doc: doc["proxy"].update(strip_listen_path=True)),
        ("apps/inference-health.json", lambda doc: doc["proxy"].update(listen_path="/v2/{part:health|ready}/")),
        ("apps/inference-health.json", lambda doc: doc["proxy"].update(listen_path="/v2/x{part}/")),
        ("apps/inference.json", lambda doc: doc["custom_middleware"].update(response=[{"name": "X"}])),
        ("apps/inference.json", lambda doc: doc["version_data"]["versions"]["Default"].update(global_size_limit=1)),
        ("apps/inference-health.json", lambda doc: doc["version_data"]["versions"]["Default"].update(paths={})),
    ],
)
def test_so_it_is_for_the_overrides_of_all_and_what_goes_to_the_upstream(
    files: Path, file: str, change: Change
) -> None:
    with pytest.raises(Misconfigured, match="the edge"):
        load(changed(files, change, file))


def test_unknown_context_variable_is_refused(files: Path) -> None:
    def change(doc: dict[str, Any]) -> None:
        version = doc["version_data"]["versions"]["Default"]
        version["global_headers"]["X-Path"] = "$tyk_context.path"

    front = load(changed(files, change))
    with pytest.raises(Misconfigured, match="X-Path"):
        ObjectMaker(front.hooked, front.xff_depth)


def test_a_secret_of_the_deployment_stands_in_where_the_definition_has_none(files: Path) -> None:
    assert load(files, secret="between us").hooked.config_data == '{"secret":"between us"}'
    theirs = changed(files, lambda doc: doc.update(config_data={"secret": "its own"}))
    assert load(theirs, secret="between us").hooked.config_data == '{"secret":"its own"}'


def test_config_data_reaches_the_plugin_as_go_writes_it(files: Path) -> None:
    front = load(changed(files, lambda doc: doc.update(config_data={"secret": "s", "a": [1, 2]})))
    made = ObjectMaker(front.hooked, 0).auth("GET", RequestTarget("/", "/"), {})
    assert made.spec["config_data"] == '{"a":[1,2],"secret":"s"}'


def test_missing_files_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"tyk\.conf"):
        load(tmp_path)


def test_every_override_has_the_status_and_shape_of_our_errors() -> None:
    for rules in load().overrides.values():
        for rule in rules:
            doc = json.loads(rule.body)
            means = MEANINGS[doc["code"]]
            assert (rule.status, doc["status"], doc["title"]) == (means.http, means.http, means.title)
            assert doc["error"] == doc["detail"]
            assert doc["type"] == f"urn:signalbox:error:{doc['code']}"
            assert rule.headers["Content-Type"] == "application/json"
            assert ("Retry-After" in rule.headers) == (means.http in {429, 503})


@pytest.mark.parametrize(
    "error",
    [
        errors.PLUGIN_AWAY,
        errors.NO_SESSION,
        errors.HOOK_FAILED,
        errors.NOT_PROXIED,
        errors.KEY_INACTIVE,
        errors.KEY_EXPIRED,
        errors.API_DISALLOWED,
        errors.RATE_EXCEEDED,
        errors.QUOTA_EXCEEDED,
    ],
)
def test_each_text_of_the_gateway_has_an_override(error: GatewayError) -> None:
    page = ErrorTemplates(load()).page(error)
    assert "code" in json.loads(page.body)


def test_outage_is_never_answered_as_a_bad_key() -> None:
    pages = ErrorTemplates(load())
    for error in (errors.PLUGIN_AWAY, errors.NO_SESSION, errors.HOOK_FAILED):
        assert pages.page(error).status == 503


def test_a_remembered_page_keeps_nothing_of_the_request() -> None:
    pages = ErrorTemplates(load())
    for number in range(3):
        shown = pages.known(errors.HOOK_FAILED, f"text/{number};" + "a" * 100)
        assert shown == pages.page(errors.HOOK_FAILED)
        xml = pages.known(errors.HOOK_FAILED, f"text/xml; a={number}")
        assert xml == pages.page(errors.HOOK_FAILED, "text/xml")
    assert pages._remembered.cache_info().currsize == 2


def test_interrupted_answer_does_not_claim_that_nothing_was_accepted() -> None:
    page = ErrorTemplates(load()).page(errors.HOOK_FAILED)
    assert json.loads(page.body)["code"] == "ambiguous"


def test_line_breaks_cannot_leave_a_header() -> None:
    assert responses.wire_headers([("X-A", "a\r\nX-B: b")]) == [(b"X-A", b"a  X-B: b")]
