"""Rules for Tyk: its configuration, and each API definition, as files, with the environment it is started in."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from signalbox.bus.transport.encryption import is_loopback
from signalbox.ops.doctor.catalog import Finding
from signalbox.program.words import counted

_SHIPPED_SECRET: Final = "352d20ee67be67f6340b4c0605b044b7"  # noqa: S105  the one in Tyk's own examples
_SECRET_CHARS: Final = 16
_NOWHERE: Final = "http://127.0.0.1:9"
"""The discard port: nothing listens there, so that what no hook answers goes nowhere."""
_HEALTH: Final = frozenset(
    {
        "/grpc.health.v1.Health/",
        "/inference.GRPCInferenceService/Server",
        "/v2/health/",
        "/v2/models/{model}/ready",
        "/v2/models/{model}/versions/{version}/ready",
    }
)
"""What the upstream tells anybody; of ``ServerMetadata`` it wants a key all the same."""


def examine_conf(
    conf: Mapping[str, Any], where: str, env: Mapping[str, str] | None = None, public_ports: Collection[int] = ()
) -> Iterator[Finding]:
    """Every weak setting of ``tyk.conf``.

    env: variables Tyk is started with, which win over the file. public_ports: of the API definitions.
    """
    given = env or {}
    for name, variable in (("secret", "TYK_GW_SECRET"), ("node_secret", "TYK_GW_NODESECRET")):
        text = given.get(variable) or str(conf.get(name, ""))
        if text == _SHIPPED_SECRET or len(text) < _SECRET_CHARS:
            what = "the published one" if text == _SHIPPED_SECRET else f"{counted(len(text), 'character')}"
            yield Finding("tyk.secret", where, f"{name}: {what}")
    if conf.get("control_api_port", 0) in {0, conf.get("listen_port", 8080), *public_ports}:
        yield Finding("tyk.control_public", where, "control_api_port is not set apart")
    if not conf.get("hash_keys"):
        yield Finding("tyk.keys_unhashed", where, "hash_keys: false")
    if conf.get("enable_bundle_downloader"):
        yield Finding("tyk.bundles", where, "enable_bundle_downloader: true")
    http: Mapping[str, Any] = conf.get("http_server_options", {})
    if conf.get("enable_http_profiler") or http.get("enable_http_profiler"):
        yield Finding("tyk.profiler", where, "enable_http_profiler: true")
    if str(given.get("TYK_LOGLEVEL") or conf.get("log_level", "")).lower() == "debug":
        yield Finding("tyk.debug", where, "log_level: debug")
    if conf.get("enable_analytics") and conf.get("analytics_config", {}).get("enable_detailed_recording"):
        yield Finding("tyk.recording", where, "analytics_config.enable_detailed_recording: true")
    if not http.get("max_request_body_size"):
        yield Finding("tyk.no_body_limit", where, "max_request_body_size is not set")
    if not conf.get("hide_generator_header"):
        yield Finding("tyk.version_shown", where, "hide_generator_header: false")
    yield from _neighbours(conf, where, given)


def _neighbours(conf: Mapping[str, Any], where: str, given: Mapping[str, str]) -> Iterator[Finding]:
    storage: Mapping[str, Any] = conf.get("storage", {})
    if not (given.get("TYK_GW_STORAGE_PASSWORD") or storage.get("password")):
        yield Finding("tyk.redis_open", where, "storage has no password")
    target = str(conf.get("coprocess_options", {}).get("coprocess_grpc_server", ""))
    if target and not target.startswith("unix:"):
        host = target.rpartition("//")[2].lstrip("/").rpartition(":")[0]
        if not is_loopback(host):
            yield Finding("tyk.plugin_plain", where, f"coprocess_grpc_server: {target}")


def examine_api(api: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """Every weak setting of one API definition. One that answers from mocks alone may be keyless."""
    if not api.get("active", True) or _is_mock(api):
        return
    hooks: Mapping[str, Any] = api.get("custom_middleware", {})
    proxy: Mapping[str, Any] = api.get("proxy", {})
    if api.get("use_keyless"):
        if proxy.get("listen_path") in _HEALTH:
            return
        yield Finding("tyk.keyless", where, "use_keyless: true")
    if not api.get("enable_coprocess_auth") or not hooks.get("auth_check", {}).get("name"):
        yield Finding("tyk.no_auth_hook", where, "no auth_check")
    if hooks.get("id_extractor", {}).get("extract_from"):
        yield Finding("tyk.cached_auth", where, "id_extractor")
    if api.get("enable_detailed_recording"):
        yield Finding("tyk.recording", where, "enable_detailed_recording: true")
    cors: Mapping[str, Any] = api.get("CORS", {})
    if cors.get("enable") and "*" in (cors.get("allowed_origins") or ["*"]):
        yield Finding("tyk.cors", where, "every origin")
    target = str(proxy.get("target_url", ""))
    if hooks.get("post"):
        if target.rstrip("/") != _NOWHERE:
            yield Finding("tyk.upstream", where, f"target_url: {target}")
    elif not is_loopback(urlsplit(target).hostname or ""):
        yield Finding("tyk.upstream_plain", where, f"target_url: {target}")
    if hooks.get("driver") == "grpc" and not (api.get("config_data") or {}).get("secret"):
        yield Finding("gateway.secret_missing", where, "config_data.secret is not set")


def _is_mock(api: Mapping[str, Any]) -> bool:
    """Whether every path it takes is answered by a fixed reply."""
    versions = api.get("version_data", {}).get("versions", {}).values()
    lists = [v.get("extended_paths", {}).get("white_list", []) for v in versions]
    return bool(lists) and all(
        paths
        and all(action.get("action") == "reply" for path in paths for action in path.get("method_actions", {}).values())
        for paths in lists
    )
