"""What the edge needs to know of ``tyk/``: one gateway configuration and its API definitions.

Only keys the edge honours are read; a definition that turns on something the edge does not do is
refused by name, so that the edge never behaves differently from Tyk in silence.
"""

import json
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
        *("error_overrides", "config_data"),
        "listen_port",  # Tyk's; the edge has a setting of its own
    )
)


class Override(msgspec.Struct, frozen=True):
    """One rule of ``error_overrides``: a pattern over the gateway's own text, and what to answer."""

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


class HookedApi(msgspec.Struct, frozen=True):
    """The API whose requests go through the plugin's two hooks.

    global_headers: set for the Post hook only; values as in the definition. overrides: per status,
    in order, the first that matches wins. config_data: JSON text for the plugin, empty = none.
    """

    api_id: str
    org_id: str
    auth_hook: str
    post_hook: str
    is_rate_limited: bool
    has_quota: bool
    global_headers: dict[str, str]
    overrides: dict[int, tuple[Override, ...]]
    config_data: str


class Definition(msgspec.Struct, frozen=True):
    """All of ``tyk/`` that callers can observe. Sizes in bytes, times in seconds.

    shows_rate: X-RateLimit headers describe the rate limit. error_json, error_xml: templates with
    ``{{.Message}}``. xff_depth: which entry of X-Forwarded-For is believed, 0 = the first.
    """

    hooked: HookedApi
    keyless: tuple[KeylessApi, ...]
    max_body_bytes: int
    answer_s: float
    shows_rate: bool
    xff_depth: int
    error_json: str
    error_xml: str


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
    hooked = [_hooked(doc, secret) for doc in documents if not doc.get("use_keyless")]
    if len(hooked) != 1:
        raise Misconfigured(f"{folder}/apps must hold one API with hooks, it holds {len(hooked)}")
    http = conf.get("http_server_options", {})
    return Definition(
        hooked=hooked[0],
        keyless=tuple(_keyless(doc) for doc in documents if doc.get("use_keyless")),
        max_body_bytes=http.get("max_request_body_size", 0),
        answer_s=http.get("write_timeout", 120),
        shows_rate=conf.get("rate_limit_response_headers") == "rate_limits",
        xff_depth=http.get("xff_depth", 0),
        error_json=templates[0],
        error_xml=templates[1],
    )


_TEMPLATES: Final = ("error.json", "error.xml")


def _require(doc: dict[str, Any], where: str, wanted: object, found: object) -> None:
    if found != wanted:
        raise Misconfigured(f"API {doc.get('api_id')}: the edge needs {where} to be {wanted!r}, it is {found!r}")


def _hooked(doc: dict[str, Any], secret: str) -> HookedApi:
    for key in sorted(doc.keys() - _DEFINITION_KEYS):
        raise Misconfigured(f"API {doc.get('api_id')}: the edge does not know {key!r}")
    hooks = doc["custom_middleware"]
    _require(doc, "custom_middleware.driver", "grpc", hooks.get("driver"))
    _require(doc, "its hooks", {"driver", "auth_check", "post"}, set(hooks))
    _require(doc, "the number of post hooks", 1, len(hooks["post"]))
    for hook in (hooks["auth_check"], *hooks["post"]):
        _require(doc, f"{hook['name']}.raw_body_only", True, hook.get("raw_body_only"))
    _require(doc, "enable_coprocess_auth", True, doc.get("enable_coprocess_auth"))
    _require(doc, "active", True, doc.get("active"))
    _require(doc, "strip_auth_data", False, doc.get("strip_auth_data", False))
    _require(doc, "proxy.listen_path", "/", doc["proxy"]["listen_path"])
    _require(doc, "cache_options.enable_cache", False, doc["cache_options"]["enable_cache"])
    _require(doc, "CORS.enable", False, doc.get("CORS", {}).get("enable", False))
    _require(doc, "version_data.not_versioned", True, doc["version_data"]["not_versioned"])
    version = doc["version_data"]["versions"]["Default"]
    known = {"name", "expires", "use_extended_paths", "global_headers"}
    _require(doc, "what else its version sets", set(), set(version) - known)
    return HookedApi(
        api_id=doc["api_id"],
        org_id=doc["org_id"],
        auth_hook=hooks["auth_check"]["name"],
        post_hook=hooks["post"][0]["name"],
        is_rate_limited=not doc.get("disable_rate_limit", False),
        has_quota=not doc.get("disable_quota", False),
        global_headers=version.get("global_headers", {}),
        overrides={
            int(status): tuple(_override(doc, rule) for rule in rules)
            for status, rules in doc.get("error_overrides", {}).items()
        },
        config_data=_compact(({"secret": secret} if secret else {}) | (doc.get("config_data") or {})),
    )


def _compact(data: dict[str, Any] | None) -> str:
    """JSON as Go marshals a map; nothing of an empty one."""
    return json.dumps(data, separators=(",", ":"), sort_keys=True) if data else ""


def _override(doc: dict[str, Any], rule: dict[str, Any]) -> Override:
    response = rule["response"]
    _require(doc, "what an override matches", {"message_pattern"}, set(rule["match"]))
    _require(doc, "an override", {"status_code", "body", "headers"}, set(response))
    _require(doc, "templates in an override", False, "{{" in response["body"])
    return Override(rule["match"]["message_pattern"], response["status_code"], response["body"], response["headers"])


def _keyless(doc: dict[str, Any]) -> KeylessApi:
    paths = doc["version_data"]["versions"]["Default"]["extended_paths"]
    _require(doc, "extended_paths", {"white_list"}, set(paths))
    _require(doc, "the number of white_list entries", 1, len(paths["white_list"]))
    entry = paths["white_list"][0]
    _require(doc, "white_list path", doc["proxy"]["listen_path"], entry["path"])
    mocks = {}
    for method, action in entry["method_actions"].items():
        _require(doc, f"{method}.action", "reply", action["action"])
        mocks[method] = Mock(action["code"], action["data"], action["headers"])
    return KeylessApi(doc["proxy"]["listen_path"], mocks)
