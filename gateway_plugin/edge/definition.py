"""What the edge needs to know of ``tyk/``: one gateway configuration and its API definitions.

Only keys the edge honours are read; a definition that turns on something the edge does not do is
refused by name, so that the edge never behaves differently from Tyk in silence.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from signalbox.program.errors import Misconfigured

SOURCE: Final = Path(__file__).resolve().parents[1] / "tyk"
"""In a checkout a link to the project's ``tyk/``, in a wheel a copy."""

_DEFINITION_KEYS: Final = frozenset(
    (
        *("name", "slug", "api_id", "org_id", "active", "use_keyless", "enable_coprocess_auth"),
        *("strip_auth_data", "auth_configs", "proxy", "version_data", "enable_context_vars"),
        *("custom_middleware", "custom_middleware_bundle", "disable_rate_limit", "disable_quota"),
        *("session_lifetime", "cache_options", "do_not_track", "enable_detailed_recording", "CORS"),
        "config_data",
        "listen_port",  # Tyk's; the edge has a setting of its own
    )
)
_VERSION_KEYS: Final = frozenset({"name", "expires", "use_extended_paths", "global_headers"})
_TIMEOUT: Final = "global_enforce_timeout"
_GRPC: Final = "h2c://"
NAMED_SEGMENT: Final = re.compile(r"(?<=/)\{\w+\}(?=/|$)")
"""A segment of a listen path that any text may stand for."""


class Override(msgspec.Struct, frozen=True):
    """One rule of ``error_overrides``: what to answer to the gateway's own error.

    flag: the kind of error that it is for. pattern: over the texts of others that it is for. A rule with a flag leaves
    an upstream's own answers alone.
    """

    flag: str
    pattern: str
    status: int
    body: str
    headers: dict[str, str]


class Mock(msgspec.Struct, frozen=True):
    """What a keyless API answers by itself to one method."""

    status: int
    body: str
    headers: dict[str, str]


class KeylessApi(msgspec.Struct, frozen=True):
    """A keyless API that only answers from its own definition. listen_path: prefix it takes."""

    listen_path: str
    mocks: dict[str, Mock]


class CheckedApi(msgspec.Struct, frozen=True):
    """An API whose callers' keys the plugin's auth hook checks.

    post_hook: empty = requests go on to the upstream. global_headers: set after the auth hook; values as in the
    definition. config_data: JSON text for the plugin, empty = none.
    """

    api_id: str
    org_id: str
    auth_hook: str
    post_hook: str
    is_rate_limited: bool
    has_quota: bool
    global_headers: dict[str, str]
    config_data: str


class UpstreamApi(msgspec.Struct, frozen=True):
    """An API whose requests go on to the upstream.

    listen_path: prefix it takes, in which ``{name}`` stands for one segment. is_grpc: over HTTP/2 only. checked: None =
    it needs no key.
    """

    listen_path: str
    is_grpc: bool
    checked: CheckedApi | None


class Definition(msgspec.Struct, frozen=True):
    """All of ``tyk/`` that callers can observe. Sizes in bytes, times in seconds.

    upstreams: that of the longest path first. overrides: per status, in order, the first that matches wins.
    shows_rate: X-RateLimit headers describe the rate limit. error_json, error_xml: templates with
    ``{{.Message}}``. xff_depth: which entry of X-Forwarded-For is believed, 0 = the first.
    """

    hooked: CheckedApi
    keyless: tuple[KeylessApi, ...]
    upstreams: tuple[UpstreamApi, ...]
    overrides: dict[int, tuple[Override, ...]]
    max_body_bytes: int
    answer_s: float
    shows_rate: bool
    xff_depth: int
    error_json: str
    error_xml: str

    @property
    def checked(self) -> tuple[CheckedApi, ...]:
        """All APIs that the plugin checks the keys of."""
        return (self.hooked, *(api.checked for api in self.upstreams if api.checked))


def load(folder: Path = SOURCE, *, secret: str = "") -> Definition:
    """Reads ``folder``. Raises :class:`Misconfigured` on anything the edge would not honour.

    secret: shared with the plugin, where the definition itself does not hold it.
    """
    try:
        conf = json.loads((folder / "tyk.conf").read_bytes())
        documents = [json.loads(path.read_bytes()) for path in sorted((folder / "apps").glob("*.json"))]
        templates = [(folder / "templates" / name).read_text() for name in _TEMPLATES]
    except (OSError, ValueError) as error:
        raise Misconfigured(f"the gateway's files in {folder} cannot be read: {error}") from error
    hooked = [doc for doc in documents if "post" in doc.get("custom_middleware", {})]
    mocks = [doc for doc in documents if doc.get("use_keyless") and _version(doc).get("extended_paths")]
    if len(hooked) != 1:
        raise Misconfigured(f"{folder}/apps must hold one API with a post hook, it holds {len(hooked)}")
    upstreams = [_upstream(doc, secret) for doc in documents if doc not in hooked and doc not in mocks]
    http = conf.get("http_server_options", {})
    return Definition(
        hooked=_hooked(hooked[0], secret),
        keyless=tuple(map(_mock, mocks)),
        upstreams=tuple(sorted(upstreams, key=lambda api: -_length(api.listen_path))),
        overrides={
            int(status): tuple(map(_override, rules)) for status, rules in conf.get("error_overrides", {}).items()
        },
        max_body_bytes=http.get("max_request_body_size", 0),
        answer_s=http.get("write_timeout", 120),
        shows_rate=conf.get("rate_limit_response_headers") == "rate_limits",
        xff_depth=http.get("xff_depth", 0),
        error_json=templates[0],
        error_xml=templates[1],
    )


_TEMPLATES: Final = ("error.json", "error.xml")


def _require(where: str, what: str, wanted: object, found: object) -> None:
    """Raise :class:`Misconfigured` unless ``what`` is as the edge needs it. where: the file or API that says so."""
    if found != wanted:
        raise Misconfigured(f"{where}: the edge needs {what} to be {wanted!r}, it is {found!r}")


def _name(doc: dict[str, Any]) -> str:
    return f"API {doc.get('api_id')}"


def _length(listen_path: str) -> int:
    """By which Tyk puts the paths in order: of a segment that is a ``{name}`` it counts nothing."""
    return len(NAMED_SEGMENT.sub("", listen_path))


def _version(doc: dict[str, Any]) -> dict[str, Any]:
    _require(_name(doc), "version_data.not_versioned", True, doc["version_data"]["not_versioned"])
    version: dict[str, Any] = doc["version_data"]["versions"]["Default"]
    return version


def _hooked(doc: dict[str, Any], secret: str) -> CheckedApi:
    where, hooks = _name(doc), doc["custom_middleware"]
    _require(where, "its hooks", {"driver", "auth_check", "post"}, set(hooks))
    _require(where, "the number of post hooks", 1, len(hooks["post"]))
    _require(where, "proxy.listen_path", "/", doc["proxy"]["listen_path"])
    _require(where, "what else its version sets", set(), set(_version(doc)) - _VERSION_KEYS)
    return _checked(doc, secret, hooks["post"][0])


def _upstream(doc: dict[str, Any], secret: str) -> UpstreamApi:
    where, proxy = _name(doc), doc["proxy"]
    is_grpc = proxy["target_url"].startswith(_GRPC)
    _require(where, "proxy.strip_listen_path", False, proxy.get("strip_listen_path"))
    _require(
        where, "a brace in proxy.listen_path but for {name}", False, "{" in NAMED_SEGMENT.sub("", proxy["listen_path"])
    )
    if is_grpc:  # its overrides are for callers that the edge's HTTP/1.1 does not reach; those of all are in tyk.conf
        doc = {name: value for name, value in doc.items() if name != "error_overrides"}
    if doc.get("use_keyless"):
        _require(where, "what its version sets", {"name"}, set(_version(doc)))
        return UpstreamApi(proxy["listen_path"], is_grpc, None)
    _require(where, "its hooks", {"driver", "auth_check"}, set(doc["custom_middleware"]))
    _require(where, "what else its version sets", set(), set(_version(doc)) - _VERSION_KEYS - {_TIMEOUT})
    return UpstreamApi(proxy["listen_path"], is_grpc, _checked(doc, secret, None))


def _checked(doc: dict[str, Any], secret: str, post: dict[str, Any] | None) -> CheckedApi:
    where = _name(doc)
    for key in sorted(doc.keys() - _DEFINITION_KEYS):
        raise Misconfigured(f"{where}: the edge does not know {key!r}")
    hooks = doc["custom_middleware"]
    _require(where, "custom_middleware.driver", "grpc", hooks.get("driver"))
    for hook in filter(None, (hooks["auth_check"], post)):
        _require(where, f"{hook['name']}.raw_body_only", True, hook.get("raw_body_only"))
    _require(where, "enable_coprocess_auth", True, doc.get("enable_coprocess_auth"))
    _require(where, "active", True, doc.get("active"))
    _require(where, "use_keyless", False, doc.get("use_keyless", False))
    _require(where, "strip_auth_data", False, doc.get("strip_auth_data", False))
    _require(where, "cache_options.enable_cache", False, doc["cache_options"]["enable_cache"])
    _require(where, "CORS.enable", False, doc.get("CORS", {}).get("enable", False))
    return CheckedApi(
        api_id=doc["api_id"],
        org_id=doc["org_id"],
        auth_hook=hooks["auth_check"]["name"],
        post_hook=post["name"] if post else "",
        is_rate_limited=not doc.get("disable_rate_limit", False),
        has_quota=not doc.get("disable_quota", False),
        global_headers=_version(doc).get("global_headers", {}),
        config_data=_compact(({"secret": secret} if secret else {}) | (doc.get("config_data") or {})),
    )


def _compact(data: dict[str, Any] | None) -> str:
    """JSON as Go marshals a map; nothing of an empty one."""
    return json.dumps(data, separators=(",", ":"), sort_keys=True) if data else ""


def _override(rule: dict[str, Any]) -> Override:
    where, match, response = "tyk.conf", rule["match"], rule["response"]
    _require(where, "what an override matches", {"flag", "message_pattern"}, set(match))
    _require(where, "an override", {"status_code", "body", "headers"}, set(response))
    _require(where, "templates in an override", False, "{{" in response["body"])
    return Override(
        match["flag"], match["message_pattern"], response["status_code"], response["body"], response["headers"]
    )


def _mock(doc: dict[str, Any]) -> KeylessApi:
    where, paths = _name(doc), _version(doc)["extended_paths"]
    _require(where, "extended_paths", {"white_list"}, set(paths))
    _require(where, "the number of white_list entries", 1, len(paths["white_list"]))
    entry = paths["white_list"][0]
    _require(where, "white_list path", doc["proxy"]["listen_path"], entry["path"])
    mocks = {}
    for method, action in entry["method_actions"].items():
        _require(where, f"{method}.action", "reply", action["action"])
        mocks[method] = Mock(action["code"], action["data"], action["headers"])
    return KeylessApi(doc["proxy"]["listen_path"], mocks)
