"""Predictions at the addresses of the queue product, with a real NATS and a worker that is a script."""

import gzip
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from gateway_plugin.codec.protobuf.protowire import WireReader, field, number
from gateway_plugin.jsonresponses import JOB_ID, JsonResponse
from gateway_plugin.request import Request
from signalbox.program.errors import (
    Forbidden,
    InvalidRequest,
    ModelError,
    NotFound,
    NotServing,
    UnsupportedEncoding,
)
from signalbox.wire.messages import ErrorInfo
from signalbox.wire.modeldocs import Access, Signature, TensorSpec, Version
from signalbox.wire.tensors import Tensor
from tests.rigs.gateway import Key, Rig, ScriptedWorker, key, model, rig
from tests.rigs.natsserver import NatsServer

FLOATS = TensorSpec(dtype="float32", shape=(-1,))


@pytest.fixture
def mine() -> Key:
    return key()


@pytest.fixture
async def made(nats: NatsServer, tmp_path: Path, mine: Key) -> AsyncIterator[Rig]:
    async with rig(nats.url, tmp_path) as made:
        await made.publish(mine, model())
        yield made


def arrays(*values: float, name: str = "x", outputs: tuple[str, ...] = (), signature: str = "") -> bytes:
    """A TFRequest with one array of floats."""
    sizes = field(2, field(1, bytes([len(values)])))
    array = number(1, 1) + sizes + field(3, struct.pack(f"<{len(values)}f", *values))
    asked = field(1, signature.encode()) if signature else b""
    asked += field(2, field(1, name.encode()) + field(2, array))
    return asked + b"".join(field(3, one.encode()) for one in outputs)


def floats(reply: bytes) -> dict[str, list[float]]:
    """The arrays of a TFResponse."""
    reader, found = WireReader("TFResponse"), {}
    for one in reader.fields(memoryview(reply)):
        name, value = reader.entry(one)
        assert value is not None
        data = b"".join(part.data for part in reader.fields(value.data) if part.number == 3)
        found[name] = list(struct.unpack(f"<{len(data) // 4}f", data))
    return found


async def predict(made: Rig, mine: Key, body: bytes, name: str = "half", **headers: str) -> JsonResponse:
    sent = {"Content-Type": "application/octet-stream", **{at.replace("_", "-"): to for at, to in headers.items()}}
    request = Request("POST", f"/api/predict/{name}", sent, body)
    answer = await made.gateway._dialects.of(request.url).answer(request, mine.stored)
    assert isinstance(answer, JsonResponse)
    return answer


async def test_the_answer_is_in_the_form_of_the_request(made: Rig, mine: Key) -> None:
    async with ScriptedWorker(made.bus, "half"):
        rows = await predict(made, mine, b'{"instances": [1.0, 2.0, 5.0]}')
        columns = await predict(made, mine, b'\n{"inputs": [1.0], "signature_name": "serving_default"}')
        packed = await predict(made, mine, arrays(1.0, 2.0, 5.0, outputs=("y",), signature="serving_default"))
    assert (rows.status, rows.body) == (200, b'{"predictions":[2.5,3.0,4.5]}')
    assert (columns.status, columns.body) == (200, b'{"outputs":[2.5]}')
    assert (packed.status, floats(packed.body)) == (200, {"y": [2.5, 3.0, 4.5]})
    assert packed.headers["Content-Type"] == "application/octet-stream"
    assert {JOB_ID, "X-Signalbox-Queue-Ms"} <= packed.headers.keys()


async def test_only_the_outputs_that_a_request_names_come_back(made: Rig, mine: Key) -> None:
    two = Signature(inputs={"x": FLOATS}, outputs={"y": FLOATS, "z": FLOATS})
    signatures = {"serving_default": two}
    await made.publish(model("two", versions=(Version(version=1, path="/nowhere", signatures=signatures),)))

    def both(given: Sequence[Tensor]) -> list[Tensor]:
        (x,) = given
        return [Tensor(name, x.dtype, x.shape, x.data) for name in ("y", "z")]

    async with ScriptedWorker(made.bus, "two", both):
        assert floats((await predict(made, mine, arrays(4.0, outputs=("z",)), "two")).body) == {"z": [4.0]}
        assert floats((await predict(made, mine, arrays(4.0), "two")).body) == {"y": [4.0], "z": [4.0]}


async def test_what_the_model_refuses_is_an_error_of_its_caller_s_kind(made: Rig, mine: Key) -> None:
    refusing = ErrorInfo(code="model_error", message="no such word")
    async with ScriptedWorker(made.bus, "half", lambda _: refusing):
        for body in (arrays(1.0), b'{"instances": [1.0]}'):
            with pytest.raises(ModelError, match="no such word"):
                await predict(made, mine, body)


async def test_what_cannot_be_predicted_is_refused_and_nothing_is_stored(made: Rig, mine: Key) -> None:
    closed = key(models=("other",))
    scopeless = key(scopes=("jobs:read",))
    await made.publish(
        closed,
        scopeless,
        model("off", is_enabled=False),
        model("theirs", access=Access(is_open=False, accounts=("another",))),
    )
    for body in (arrays(1.0), b'{"instances": [1.0]}'):
        with pytest.raises(Forbidden):
            await predict(made, closed, body)
        with pytest.raises(Forbidden):
            await predict(made, scopeless, body)
        with pytest.raises(NotServing):
            await predict(made, mine, body, "off")
        for name in ("nothing", "theirs", "half:predict", "..", "a/b", ""):
            with pytest.raises(NotFound):
                await predict(made, mine, body, name)
    with pytest.raises(UnsupportedEncoding):
        await predict(made, mine, arrays(1.0), Content_Encoding="gzip")
    for body in (b"", b"plain text", arrays(1.0, name="w"), arrays(1.0, outputs=("w",)), arrays(1.0)[:-3]):
        with pytest.raises(InvalidRequest):
            await predict(made, mine, body)
    assert await made.queued() == 0


async def test_a_gzipped_json_body_is_taken_as_on_the_other_paths(made: Rig, mine: Key) -> None:
    async with ScriptedWorker(made.bus, "half"):
        got = await predict(made, mine, gzip.compress(b'{"instances": [4.0]}'), Content_Encoding="gzip")
    assert got.body == b'{"predictions":[4.0]}'
