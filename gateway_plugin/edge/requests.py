"""Makes the coprocess objects that Tyk would send: the auth object from a request, the Post object from its reply."""

import random
from collections.abc import Mapping, MutableMapping
from typing import Final

from gateway_plugin.admission.addresses import written
from gateway_plugin.edge.definition import CheckedApi
from gateway_plugin.edge.target import RequestTarget, parameters
from gateway_plugin.proto.coprocess_pb2 import HookType, Object
from gateway_plugin.service.request import canonical
from signalbox.program.errors import Misconfigured

_NO_BUNDLE: Final = "d41d8cd98f00b204e9800998ecf8427e"  # what Tyk sends as bundle_hash without one
_FORM: Final = "application/x-www-form-urlencoded"
_FORM_LIMIT: Final = 10 * 1024 * 1024 + 1  # Go reads no more of a form
_ADDRESS: Final = "$tyk_context.remote_addr"
_REQUEST_ID: Final = "$tyk_context.request_id"


def client_address(headers: Mapping[str, str], peer: str, xff_depth: int) -> str:
    """The client's address as Tyk believes it: X-Real-Ip, X-Forwarded-For, then the peer."""
    real = written(headers.get("X-Real-Ip", ""))
    if real:
        return real
    forwarded = headers.get("X-Forwarded-For", "")
    if forwarded:
        entries = forwarded.split(",")
        if xff_depth > len(entries):
            return ""
        chosen = written(entries[-xff_depth if xff_depth else 0].strip())
        if chosen:
            return chosen
    return peer


def request_id() -> str:
    """A random UUID in text. Not a secret, so the plain generator is good enough."""
    digits = f"{random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def body_as_tyk_has_it(headers: Mapping[str, str], body: bytes) -> bytes:
    """The body as Tyk passes it on: Tyk reads forms for context variables, and keeps what it read or only the rest."""
    if len(body) <= _FORM_LIMIT:
        return body
    content_type = headers.get("Content-Type", "")
    if content_type == _FORM:
        return body[:_FORM_LIMIT]
    if content_type.partition(";")[0].strip().lower() == _FORM:
        return body[_FORM_LIMIT:]
    return body


class AddedHeaders:
    """The headers that an API definition adds to each request. Raises Misconfigured for an unknown variable."""

    def __init__(self, api: CheckedApi, xff_depth: int) -> None:
        self._xff_depth = xff_depth
        self._added = [(canonical(n.encode()), v) for n, v in api.global_headers.items()]
        for name, value in self._added:
            if value.startswith("$") and value not in {_ADDRESS, _REQUEST_ID}:
                raise Misconfigured(f"global header {name}: the edge does not know {value!r}")

    def add(self, headers: MutableMapping[str, str], peer: str) -> None:
        """Add them to a request of ``peer``, in place of what a client gave by these names."""
        headers.update(self.of(headers, peer))

    def of(self, headers: Mapping[str, str], peer: str) -> dict[str, str]:
        """Those of a request of ``peer``."""
        found = {}
        for name, value in self._added:
            if value == _ADDRESS:
                found[name] = client_address(headers, peer, self._xff_depth)
            else:
                found[name] = request_id() if value == _REQUEST_ID else value
        return found


class ObjectMaker:
    """Builds the objects of both hooks for one API."""

    def __init__(self, api: CheckedApi, xff_depth: int) -> None:
        self._api = api
        self._template = Object(
            hook_type=HookType.CustomKeyCheck,
            hook_name=api.auth_hook,
            spec={"OrgID": api.org_id, "APIID": api.api_id, "bundle_hash": _NO_BUNDLE},
        )
        if api.config_data:
            self._template.spec["config_data"] = api.config_data
        self._template.request.return_overrides.response_code = -1
        self._template.request.scheme = "http"
        self._added = AddedHeaders(api, xff_depth)

    def auth(self, method: str, target: RequestTarget, headers: dict[str, str]) -> Object:
        """The object of the auth hook, without a body."""
        made = Object()
        made.CopyFrom(self._template)
        request = made.request
        request.headers.update(headers)
        request.url = target.url
        request.request_uri = target.uri
        request.method = method
        if "?" in target.url:
            request.params.update(parameters(target.url.partition("?")[2]))
        return made

    def post(self, authed: Object, replied: Object, sent_url: str, peer: str, body: bytes) -> Object:
        """The object of the Post hook: what the auth hook was sent, with its reply's changes applied, and the body.

        Like Tyk, it reads of the reply the url, method, changes and session. Raises ValueError on a url or a change
        of parameters that the edge does not carry out.
        """
        request = replied.request
        headers = request.headers
        if replied is not authed:  # it came over the wire
            headers.clear()
            headers.update(authed.request.headers)
            replied.spec.clear()
            replied.spec.update(authed.spec)
        for name in request.delete_headers:
            headers.pop(canonical(name.encode()), None)
        for name, value in request.set_headers.items():
            headers[canonical(name.encode())] = value
        if request.delete_params or request.add_params:
            raise ValueError("the edge changes no query parameters for a plugin")
        if request.url != sent_url and not request.url.startswith("/"):
            raise ValueError(f"{request.url!r} is no request target")
        request.ClearField("delete_headers")
        request.ClearField("set_headers")
        request.ClearField("body")
        request.raw_body = body_as_tyk_has_it(headers, body)
        self._added.add(headers, peer)
        session = replied.session
        session.org_id = self._api.org_id
        session.key_id = session.metadata["token"]
        replied.metadata.clear()
        replied.metadata.MergeFrom(session.metadata)
        request.return_overrides.Clear()
        request.return_overrides.response_code = -1
        replied.hook_type = HookType.Post
        replied.hook_name = self._api.post_hook
        return replied
