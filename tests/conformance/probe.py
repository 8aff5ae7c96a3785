"""A plugin that does what the request says: it shows what a front sends and how it takes replies.

Run as ``python probe.py --listen unix:///path``. The header ``X-Probe`` holds JSON: ``auth`` says what the
auth hook does, ``post`` what the Post hook does; without them the key is good and Post shows what it got. Before the
upstream the auth hook is the real one but for the keys that it knows.
"""

import argparse
import asyncio
import base64
import hashlib
import json
import sys
from collections import Counter, defaultdict
from typing import Any

import grpc
import uvloop
from google.protobuf.json_format import MessageToDict

from gateway_plugin.hooks.dispatcher import UPSTREAM_AUTH, Dispatcher
from gateway_plugin.jsonresponses import JsonResponse
from gateway_plugin.proto.coprocess_pb2 import HookType, Object
from signalbox.program.errors import Unauthorized
from tests.rigs.dialects import DIALECTS

_SIZES = [(f"grpc.max_{way}_message_length", 128 * 1024 * 1024) for way in ("receive", "send")]
_calls: Counter[str] = Counter()
_cancelled: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
_started: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


def token(key_id: str) -> str:
    """A session token in Tyk's own base64 form, hashed with sha256."""
    text = json.dumps({"org": "signalbox", "id": key_id, "h": "sha256"}, separators=(",", ":"))
    return base64.b64encode(text.encode()).decode()


async def dispatch(obj: Object) -> Object:
    """Both hooks."""
    is_auth = obj.hook_type == HookType.CustomKeyCheck
    doc = json.loads(obj.request.headers.get("X-Probe", "{}"))
    tag = doc.get("tag", "")
    _calls[f"{tag}/{'auth' if is_auth else 'post'}"] += 1
    wanted = doc.get("auth" if is_auth else "post", {})
    if "wait" in wanted:
        await _wait(tag, wanted["wait"])
    if wanted.get("raises"):
        raise RuntimeError("asked to")
    if obj.hook_name == UPSTREAM_AUTH:
        return await _before_upstream.dispatch(obj)
    if is_auth:
        return _authenticated(obj, wanted)
    if "was_cancelled" in wanted:
        async with asyncio.timeout(60):
            await _cancelled[wanted["was_cancelled"]].wait()
    if "was_started" in wanted:
        async with asyncio.timeout(60):
            await _started[wanted["was_started"]].wait()
    return _answered(obj, wanted, tag)


def _upstream_auth(obj: Object) -> None:
    """What the real hook does with a key, which is good unless the request says otherwise."""
    wanted = json.loads(obj.request.headers.get("X-Probe", "{}")).get("auth", {})
    if "refuses" in wanted:
        raise Unauthorized(wanted["refuses"])
    _authenticated(obj, wanted)


async def _no_post(_: Object) -> JsonResponse:
    raise AssertionError


_before_upstream = Dispatcher(_upstream_auth, _no_post, DIALECTS)


async def _wait(tag: str, seconds: float) -> None:
    _started[tag].set()
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        _cancelled[tag].set()
        raise


def _authenticated(obj: Object, wanted: dict[str, Any]) -> Object:
    if "status" in wanted:
        return _reply(obj, wanted)
    if wanted.get("no_session"):
        return obj
    session = obj.session
    session.metadata["token"] = token(wanted.get("id", "someone"))
    for name, value in wanted.get("session", {}).items():
        setattr(session, name, value)
    for api in wanted.get("apis", []):
        session.access_rights[api].api_id = api
    for name, value in wanted.get("set_headers", {}).items():
        obj.request.set_headers[name] = value
    obj.request.delete_headers.extend(wanted.get("delete_headers", []))
    return obj


def _answered(obj: Object, wanted: dict[str, Any], tag: str) -> Object:
    if wanted.get("passes"):
        return obj
    if "status" in wanted:
        return _reply(obj, wanted)
    body = obj.request.raw_body
    seen = MessageToDict(obj, preserving_proto_field_name=True)
    seen["request"].pop("raw_body", None)
    seen["sent_text"] = seen["request"].pop("body", "")
    seen["sha256"] = hashlib.sha256(body).hexdigest()
    seen["size"] = len(body)
    seen["calls"] = {
        name.rpartition("/")[2]: number
        for name, number in _calls.items()
        if name.rpartition("/")[0] == wanted.get("calls_of", tag)
    }
    return _reply(obj, {"status": 200, "body": json.dumps(seen), "headers": {"Content-Type": "application/json"}})


def _reply(obj: Object, wanted: dict[str, Any]) -> Object:
    obj.request.raw_body = b""
    overrides = obj.request.return_overrides
    overrides.response_code = wanted["status"]
    overrides.response_body = wanted.get("body", "")
    overrides.override_error = wanted.get("override_error", True)
    overrides.headers.update(wanted.get("headers", {}))
    return obj


async def _grpc(obj: Object, _: Any) -> Object:
    return await dispatch(obj)


async def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    given = parser.parse_args()
    server = grpc.aio.server(options=_SIZES)
    handler = grpc.unary_unary_rpc_method_handler(_grpc, Object.FromString, Object.SerializeToString)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("coprocess.Dispatcher", {"Dispatch": handler}),)
    )
    server.add_insecure_port(given.listen)
    await server.start()
    sys.stdout.write("probe is ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
