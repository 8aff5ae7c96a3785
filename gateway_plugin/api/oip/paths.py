"""Maps the Open Inference Protocol's methods and paths to routes. Pure; nothing is looked up.

HEAD is routed as GET: whoever sends the answer leaves its body out. Case matters; names of models are percent-decoded.
Source: the protocol's ``rest_predict_v2.yaml`` and Triton's protocol extensions.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import unquote

from signalbox.program.errors import MethodNotAllowed, NotFound, Unimplemented

_SHOWN: Final = 200


class Operation(StrEnum):
    """What a request asks for."""

    SERVER = "server"
    LIVE = "live"
    READY = "ready"
    MODELS = "models"
    MODEL = "model"
    MODEL_READY = "model_ready"
    CONFIG = "config"
    INFER = "infer"
    STATISTICS = "statistics"
    INDEX = "index"
    LOAD = "load"
    UNLOAD = "unload"


class Route(NamedTuple):
    """The operation of a request and its target. version: empty = what the model's requests get now."""

    operation: Operation
    model: str = ""
    version: str = ""


SHARED_MEMORY: Final = "Callers share no memory with a GPU host; send tensors in the request (binary_data_size)."
TRACE: Final = "Traces are recorded where a request carries a traceparent header; there is nothing to set."
LOGGING: Final = "What is logged is set where Signalbox is operated (SIGNALBOX_LOG_LEVEL)."
GENERATE: Final = "Text is not generated here; send the model's inputs as tensors to .../infer."

_FIXED: Final = {
    "/v2": ("GET", Operation.SERVER),
    "/v2/": ("GET", Operation.SERVER),
    "/v2/health/live": ("GET", Operation.LIVE),
    "/v2/health/ready": ("GET", Operation.READY),
    "/v2/models": ("GET", Operation.MODELS),
    "/v2/models/stats": ("GET", Operation.STATISTICS),
    "/v2/repository/index": ("POST", Operation.INDEX),
}
_MODEL: Final = re.compile(
    r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?(?P<part>/ready|/config|/stats|/infer)?"
)
_PARTS: Final = {
    None: ("GET", Operation.MODEL),
    "/ready": ("GET", Operation.MODEL_READY),
    "/config": ("GET", Operation.CONFIG),
    "/stats": ("GET", Operation.STATISTICS),
    "/infer": ("POST", Operation.INFER),
}
_MISSING: Final = (
    (re.compile(r"/v2/(?:system|cuda)sharedmemory/.*"), SHARED_MEMORY),
    (re.compile(r"/v2/(?:models/[^/]+/)?trace/setting"), TRACE),
    (re.compile(r"/v2/logging"), LOGGING),
    (re.compile(r"/v2/models/[^/]+(?:/versions/[^/]+)?/generate(?:_stream)?"), GENERATE),
)
_REPOSITORY: Final = re.compile(r"/v2/repository/models/(?P<model>[^/]+)/(?P<act>load|unload)")
_READS: Final = frozenset({"GET", "HEAD"})
_KEYLESS: Final = frozenset({Operation.LIVE, Operation.READY, Operation.MODEL_READY})


def is_keyless(method: str, path: str) -> bool:
    """Whether a request needs no key: those for the health of the server and of models."""
    if method not in _READS:  # so that paths of inferences are read once
        return False
    known = _FIXED.get(path)
    if known is None and (found := _MODEL.fullmatch(path)) is not None:
        known = _PARTS[found["part"]]
    return known is not None and known[1] in _KEYLESS


def route_of(method: str, path: str) -> Route:
    """The route of a request. path: without its query.

    Raises :class:`NotFound`, :class:`MethodNotAllowed` (with ``allow``) and :class:`Unimplemented`.
    """
    fixed = _FIXED.get(path)
    if fixed is not None:
        return Route(_allowed(method, path, *fixed))
    for pattern, why in _MISSING:
        if pattern.fullmatch(path):
            raise Unimplemented(f"{path[:_SHOWN]} is not offered. {why}")
    if (found := _REPOSITORY.fullmatch(path)) is not None:
        return Route(_allowed(method, path, "POST", Operation(found["act"])), unquote(found["model"]))
    found = _MODEL.fullmatch(path)
    if found is None:
        raise NotFound(f"There is nothing at {path[:_SHOWN]}.")
    operation = _allowed(method, path, *_PARTS[found["part"]])
    return Route(operation, unquote(found["model"]), unquote(found["version"] or ""))


def _allowed(method: str, path: str, allowed: str, operation: Operation) -> Operation:
    if method != allowed and not (method in _READS and allowed == "GET"):
        raise MethodNotAllowed(f"{method[:20]} {path[:_SHOWN]}: this path takes {allowed}.", allow=allowed)
    return operation
