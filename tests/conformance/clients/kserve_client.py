"""The Open Inference Protocol as KServe's two clients speak it: REST with JSON and with binary tensors, and gRPC."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig
from kserve.protocol.infer_type import RequestedOutput

from tests.conformance.clients import samples
from tests.conformance.clients.steps import WRONG_KEY, Target, take, tensor

ONE = np.array([1.0, 2.0, 5.0], np.float32)
DATATYPES = {"bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64", "object": "BYTES"}


@asynccontextmanager
async def _rest() -> AsyncIterator[Any]:
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        yield client


def _request(model: str, *, binary: bool, **inputs: Any) -> Any:
    """Named arrays for a model; where they are binary, so is the answer."""
    given = []
    for name, value in inputs.items():
        datatype = DATATYPES.get(str(value.dtype), str(value.dtype).upper())
        given.append(InferInput(name, list(value.shape), datatype))
        given[-1].set_data_from_numpy(value, binary_data=binary)
    return InferRequest(model, given, parameters={"binary_data_output": True} if binary else None)


async def _infer(target: Target, request: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """The outputs of an answer over REST."""
    async with _rest() as client:
        given = target.headers if headers is None else headers
        answer = await client.infer(target.url, request, model_name=request.model_name, headers=given)
        return {one.name: tensor(one.as_numpy()) for one in answer.outputs}


async def _call(target: Target, request: Any, **more: Any) -> dict[str, Any]:
    """The outputs of an answer over gRPC."""
    async with InferenceGRPCClient(target.grpc) as client:
        answer = await client.infer(request, **{"headers": target.metadata, **more})
        return {one.name: tensor(one.as_numpy()) for one in answer.outputs}


async def _refused(call: Awaitable[Any]) -> dict[str, Any]:
    """Status and text of a call that must fail."""
    try:
        return {"answered": str(await call)}
    except httpx.HTTPStatusError as error:
        return {"code": error.response.status_code, "text": str(error)}
    except grpc.RpcError as error:
        return {"code": error.code().name, "text": error.details()}


async def rest_health_without_a_key(target: Target) -> Any:
    async with _rest() as client:
        server = [await client.is_server_live(target.url), await client.is_server_ready(target.url)]
        return [*server, await client.is_model_ready(target.url, "half")]


async def rest_model_ready(target: Target) -> Any:
    async with _rest() as client:
        return [await client.is_model_ready(target.url, name, headers=target.headers) for name in ("half", "nobody")]


async def rest_infer_json(target: Target) -> Any:
    return await _infer(target, _request("half", binary=False, x=ONE))


async def rest_infer_binary(target: Target) -> Any:
    return await _infer(target, _request("half", binary=True, x=ONE))


async def rest_infer_a_dict(target: Target) -> Any:
    """The JSON itself, as the client also takes it."""
    given = {"inputs": [{"name": "x", "shape": [2, 1], "datatype": "FP32", "data": [[1], [2.0]]}]}
    async with _rest() as client:
        answer = await client.infer(target.url, given, model_name="half", headers=target.headers)
        return tensor(answer.outputs[0].as_numpy())


async def rest_infer_some_outputs(target: Target) -> Any:
    request = _request("pair", binary=False, a=np.array([[1, 2], [3, 4]], np.int32), s=samples.strings(["a", "b"]))
    request.request_outputs = [RequestedOutput("s"), RequestedOutput("sum")]
    return await _infer(target, request)


async def rest_infer_every_dtype_json(target: Target) -> Any:
    return {
        name: (await _infer(target, _request(f"mirror_{name}", binary=False, x=value)))["y"]
        for name, value in samples.mirrored().items()
        if name in _types() and name != "float16"
    }


async def rest_infer_every_dtype_binary(target: Target) -> Any:
    return {
        name: (await _infer(target, _request(f"mirror_{name}", binary=True, x=value)))["y"]
        for name, value in samples.mirrored().items()
        if name in _types()
    }


def _types() -> set[str]:
    """The dtypes that the client knows; it has neither bfloat16 nor complex numbers."""
    return {"bool", "string", *samples.INTEGERS, *samples.FLOATS}


async def rest_infer_six_megabytes(target: Target) -> Any:
    return await _infer(target, _request("half", binary=True, x=samples.large()))


async def rest_an_unknown_model(target: Target) -> Any:
    return await _refused(_infer(target, _request("nobody", binary=False, x=ONE)))


async def rest_another_dtype(target: Target) -> Any:
    return await _refused(_infer(target, _request("half", binary=False, x=np.array([1, 2]))))


async def rest_a_wrong_key(target: Target) -> Any:
    wrong = {"Authorization": f"Bearer {WRONG_KEY}"}
    return await _refused(_infer(target, _request("half", binary=False, x=ONE), wrong))


async def rest_no_key(target: Target) -> Any:
    return await _refused(_infer(target, _request("half", binary=False, x=ONE), {}))


async def grpc_health(target: Target) -> Any:
    async with InferenceGRPCClient(target.grpc) as client:
        return [await client.is_server_live(), await client.is_server_ready()]


async def grpc_model_ready(target: Target) -> Any:
    async with InferenceGRPCClient(target.grpc) as client:
        return [await client.is_model_ready(name, headers=target.metadata) for name in ("half", "nobody")]


async def grpc_infer_raw(target: Target) -> Any:
    return await _call(target, _request("half", binary=True, x=ONE))


async def grpc_infer_typed(target: Target) -> Any:
    """The typed contents of the protocol instead of raw ones."""
    given = InferInput("x", [3], "FP32", data=ONE.tolist())
    return await _call(target, InferRequest("half", [given]))


async def grpc_infer_every_dtype_raw(target: Target) -> Any:
    return {
        name: (await _call(target, _request(f"mirror_{name}", binary=True, x=value)))["y"]
        for name, value in samples.mirrored().items()
        if name in _types()
    }


async def grpc_infer_every_dtype_typed(target: Target) -> Any:
    """float16 has no typed form."""
    found = {}
    for name, value in samples.mirrored().items():
        if name in _types() and name != "float16":
            datatype = DATATYPES.get(str(value.dtype), str(value.dtype).upper())
            given = InferInput("x", list(value.shape), datatype, data=value.ravel().tolist())
            found[name] = (await _call(target, InferRequest(f"mirror_{name}", [given])))["y"]
    return found


async def grpc_infer_six_megabytes(target: Target) -> Any:
    return await _call(target, _request("half", binary=True, x=samples.large()))


async def grpc_an_unknown_model(target: Target) -> Any:
    return await _refused(_call(target, _request("nobody", binary=True, x=ONE)))


async def grpc_a_wrong_key(target: Target) -> Any:
    wrong = [("authorization", f"Bearer {WRONG_KEY}")]
    return await _refused(_call(target, _request("half", binary=True, x=ONE), headers=wrong))


async def grpc_a_deadline(target: Target) -> Any:
    request = _request("slow", binary=True, seconds=np.array([1.5], np.float32))
    return await _refused(_call(target, request, timeout=0.5))


if __name__ == "__main__":
    take(__name__)
