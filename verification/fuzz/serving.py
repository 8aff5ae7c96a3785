"""Fuzzes TensorFlow Serving's calls: malformed bodies and paths, through the real plugin over a store in memory.

The first line of an input is what follows ``/v1/models/``, the rest a body. Whatever comes is accepted as one job, or
refused in TensorFlow Serving's shape with a status of the caller's, and then no worker learns of it.
"""

import json
from collections.abc import Hashable
from pathlib import Path
from typing import Final

from gateway_plugin.hooks.dispatcher import POST
from gateway_plugin.proto.coprocess_pb2 import Object
from verification.fuzz.dispatch import KID, SECRET, plugin
from verification.fuzz.json_bodies import TOKENS as BODY_TOKENS

SEEDS: Final = Path(__file__).parent / "corpus" / "serving"
SHARE: Final = 40_000
TOKENS: Final = (
    *BODY_TOKENS,
    *(
        word.encode()
        for word in (
            "half:predict",
            "half:classify",
            "half:regress",
            "half/versions/1:predict",
            "half/labels/stable:regress",
            '"examples"',
            '"context"',
            '"classify"',
            '"regress"',
            '"__init"',
            '[{"x": 1.0}]',
            "[{}]",
            "Inf",
            "]}X",
            "\n",
        )
    ),
)
_REFUSED: Final = frozenset({400, 404, 413})


def object_of(data: bytes) -> Object | None:
    """The call as a gateway sends it; None where it would send none."""
    head, _, body = data.partition(b"\n")
    try:
        call = head.decode()
    except UnicodeDecodeError:
        return None
    obj = Object(hook_name=POST)
    request = obj.request
    request.method, request.url, request.raw_body = "POST", f"/v1/models/{call}", body
    if body[:2] == b"\x1f\x8b":
        request.headers["Content-Encoding"] = "gzip"
    request.return_overrides.response_code = -1
    obj.spec.update(APIID="signalbox", OrgID="signalbox", config_data=json.dumps({"secret": SECRET}))
    obj.metadata["key_id"] = KID
    return obj


def one(data: bytes) -> Hashable:
    """Raises AssertionError where a promise is broken, or what the plugin raised."""
    obj = object_of(data)
    if obj is None:
        return None
    under_test = plugin()
    under_test.reset()
    answered = under_test.loop.run_until_complete(under_test.gateway.dispatcher.dispatch(obj))
    overrides = answered.request.return_overrides
    status, doc = overrides.response_code, json.loads(overrides.response_body)
    assert list(doc) == ["error"], doc
    assert doc["error"]
    assert overrides.headers["Content-Type"] == "application/json"
    jobs = [subject for subject in under_test.bus.written if subject.startswith("jobs.")]
    if status == 504:  # accepted; nobody runs it
        assert len(jobs) == 1
        return "accepted"
    assert status in _REFUSED, f"{status}: {doc}"
    assert not under_test.bus.written
    assert len(doc["error"]) < 4_000
    return status, doc["error"][:40]
