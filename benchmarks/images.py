"""What an image costs in each dialect: a 224x224x3 float32 tensor as JSON, in gRPC and in the binary extension.

Printed is the processor time of the gateway and of NATS for each image, without the runner's and the client's.
``python -m benchmarks.images FOLDER`` writes the model, the mean of each image.
"""

import asyncio
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc.aio
import numpy as np
import orjson

from benchmarks.front.path import costs
from benchmarks.rig.bed import Bed, inspected, made, publish
from benchmarks.rig.load import prepare, run
from gateway_plugin.codec import forms
from gateway_plugin.codec.inputs import plans
from gateway_plugin.codec.protobuf import protowire
from signalbox.front.jsonbody import Bounds
from signalbox.wire.modeldocs import Signature, TensorSpec

SHAPE: Final = (1, 224, 224, 3)
IN_FLIGHT: Final = 2
AIM: Final = 3.0
DECODING_AIM: Final = 0.5
DECODED: Final = 40
"""Times that an image is decoded, of which the quickest counts."""
_PREDICT: Final = "/tensorflow.serving.PredictionService/Predict"
_FLOAT: Final = 1


class Way(NamedTuple):
    """One dialect. drive: sends images for some seconds; returns how many were answered."""

    name: str
    drive: Callable[[float], int]


def decoding() -> float:
    """Print how fast JSON becomes checked tensors, in this process, beside orjson's own parsing; returns the share."""
    inputs = {"x": TensorSpec(dtype="float32", shape=(-1, *SHAPE[1:]))}
    signature = Signature(inputs=inputs, outputs={"y": TensorSpec(dtype="float32", shape=(-1,))})
    available, bounds, body = plans({"serving_default": signature}), Bounds(2**25, 2**23), _json(_image())

    def decode() -> None:
        forms.decode(forms.read(forms.Form.PREDICT, body, bounds), available, 2**26)

    parsing, whole = _least_ms(lambda: orjson.loads(body), decode)
    share = parsing / whole
    verdict = "met" if share >= DECODING_AIM else "MISSED"
    print(
        f"JSON of {len(body)} bytes: orjson {parsing:.1f} ms, to tensors {whole:.1f} ms; {share:.2f} of its rate "
        f"(aim {DECODING_AIM}: {verdict})",
        flush=True,
    )
    return share


def _least_ms(*works: Callable[[], object]) -> list[float]:
    """Processor time of the quickest run of each, run in turn."""
    spent = [math.inf] * len(works)
    for _ in range(DECODED):
        for index, work in enumerate(works):
            began = time.process_time()
            work()
            spent[index] = min(spent[index], time.process_time() - began)
    return [seconds * 1000 for seconds in spent]


async def measure(folder: Path, *, seconds: float) -> dict[str, float]:
    """Print what an image costs in each dialect, in ms of processor time; returns that by dialect."""
    spent: dict[str, float] = {}
    async with made(folder) as bed:
        await _serve_model(bed)
        for way in _ways(bed):
            await asyncio.to_thread(way.drive, 2.0)  # the model and the processes that decode are there
            before, began = costs(bed.stack), time.monotonic()
            images = await asyncio.to_thread(way.drive, seconds)
            after, took_s = costs(bed.stack), time.monotonic() - began
            parts = {
                name: (after[name].cpu_s - before[name].cpu_s) / images * 1000
                for name in after
                if name in before and name.partition("/")[0] in {"gateway", "nats"}
            }
            spent[way.name] = sum(parts.values())
            listed = ", ".join(f"{name} {ms:.2f}" for name, ms in parts.items())
            print(
                f"{way.name:<22}{images / took_s:>7.1f} images/s  {spent[way.name]:.2f} ms of CPU: {listed}", flush=True
            )
    for name in list(spent)[1:]:
        ratio = spent["JSON"] / spent[name]
        print(f"{name}: {ratio:.1f} times less than JSON (aim {AIM:g}: {'met' if ratio >= AIM else 'MISSED'})")
    return spent


async def _serve_model(bed: Bed) -> None:
    path = bed.stack.data.path / "models" / "image" / "1"
    await bed.stack.run_to_end("image", "benchmarks.images", str(path), env=bed.stack.env("worker"))
    await publish(bed.stack, await inspected(bed.stack, "image", path, max_batch=4))


def _ways(bed: Bed) -> tuple[Way, ...]:
    image = _image()
    raw, text = image.tobytes(), _json(image)
    head = {
        "inputs": [
            {"name": "x", "shape": SHAPE, "datatype": "FP32", "parameters": {"binary_data_size": len(raw)}},
        ],
        "parameters": {"binary_data_output": True},
    }
    written = json.dumps(head).encode()
    lengths = {"Inference-Header-Content-Length": str(len(written)), "Content-Type": "application/octet-stream"}
    return (
        Way("JSON", partial(_http, bed, "/v1/models/image:predict", text, {})),
        Way("TensorFlow Serving gRPC", partial(_grpc, bed, _request(raw))),
        Way("binary extension", partial(_http, bed, "/v2/models/image/infer", written + raw, lengths)),
    )


def _image() -> "np.ndarray[Any, np.dtype[np.float32]]":
    return np.random.default_rng(7).random(SHAPE, dtype=np.float32)


def _json(image: "np.ndarray[Any, np.dtype[np.float32]]") -> bytes:
    return json.dumps({"instances": np.round(image.astype(float), 7).tolist()}, separators=(",", ":")).encode()


def _http(bed: Bed, path: str, body: bytes, headers: Mapping[str, str], seconds: float) -> int:
    target = prepare(bed.stack.front_url, path, body, {**bed.headers, **headers})
    figures = run(target, IN_FLIGHT, seconds=seconds, warm_s=0.0)
    good = figures.statuses.get(200, 0)
    assert good == sum(figures.statuses.values()), figures.statuses
    return good


def _grpc(bed: Bed, request: bytes, seconds: float) -> int:
    return asyncio.run(_call_for(seconds, bed.stack.grpc_address, request, bed.headers["Authorization"]))


async def _call_for(seconds: float, address: str, request: bytes, authorization: str) -> int:
    until = time.monotonic() + seconds
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(_PREDICT, request_serializer=bytes, response_deserializer=bytes)

        async def one_after_the_other() -> int:
            count = 0
            while time.monotonic() < until:
                await call(request, metadata=(("authorization", authorization),), timeout=60)
                count += 1
            return count

        return sum(await asyncio.gather(*(one_after_the_other() for _ in range(IN_FLIGHT))))


def _request(raw: bytes) -> bytes:
    """A PredictRequest whose input is raw bytes, as TensorFlow's ``make_tensor_proto`` makes it of an array."""
    dims = b"".join(protowire.field(2, protowire.number(1, size)) for size in SHAPE)
    tensor = protowire.number(1, _FLOAT) + protowire.field(2, dims) + protowire.field(4, raw)
    entry = protowire.field(1, b"x") + protowire.field(2, tensor)
    return protowire.field(1, protowire.field(1, b"image")) + protowire.field(2, entry)


def _write_model(path: str) -> None:
    import tensorflow as tf

    spec = tf.TensorSpec((None, *SHAPE[1:]), tf.float32, name="x")
    module = tf.Module()
    module.mean = tf.function(lambda x: {"y": tf.reduce_mean(x, axis=[1, 2, 3])}, input_signature=[spec])
    tf.saved_model.save(module, path, signatures=module.mean)


if __name__ == "__main__":
    _write_model(sys.argv[1])
