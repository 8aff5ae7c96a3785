"""The Open Inference Protocol over HTTP as ``tritonclient.http`` speaks it, with binary tensors and with JSON."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.conformance.clients import samples
from tests.conformance.clients.steps import WRONG_KEY, Target, take, tensor

ONE = np.array([1.0, 2.0, 5.0], np.float32)


@functools.cache
def _client(target: Target) -> Any:
    return InferenceServerClient(target.http, concurrency=4)


def _input(name: str, value: Any, **how: Any) -> Any:
    made = InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
    made.set_data_from_numpy(value, **how)
    return made


def _infer(target: Target, model: str, inputs: list[Any], shown: list[str], **more: Any) -> dict[str, Any]:
    """What an answer has under the names ``shown``."""
    answer = _client(target).infer(model, inputs, **{"headers": target.headers, **more})
    return {name: tensor(answer.as_numpy(name)) for name in shown}


def _refused(call: Callable[[], Any]) -> dict[str, Any]:
    """Status and text of a call that must fail."""
    try:
        return {"answered": str(call())}
    except InferenceServerException as error:
        return {"code": error.status(), "text": error.message()}


def health_without_a_key(target: Target) -> Any:
    client = _client(target)
    return [client.is_server_live(), client.is_server_ready(), client.is_model_ready("half", "2")]


def model_ready(target: Target) -> Any:
    client = _client(target)
    named = client.is_model_ready("half", headers=target.headers)
    numbered = client.is_model_ready("half", "2", headers=target.headers)
    return [named, numbered, client.is_model_ready("nobody", headers=target.headers)]


def server_metadata(target: Target) -> Any:
    return _client(target).get_server_metadata(headers=target.headers)


def model_metadata(target: Target) -> Any:
    return _client(target).get_model_metadata("pair", headers=target.headers)


def model_config(target: Target) -> Any:
    return _client(target).get_model_config("pair", headers=target.headers)


def repository_index(target: Target) -> Any:
    return _client(target).get_model_repository_index(headers=target.headers)


def infer_binary(target: Target) -> Any:
    """As by default: binary tensors both ways, and every output."""
    return _infer(target, "half", [_input("x", ONE)], ["y"])


def infer_json(target: Target) -> Any:
    outputs = [InferRequestedOutput("y", binary_data=False)]
    return _infer(target, "half", [_input("x", ONE, binary_data=False)], ["y"], outputs=outputs)


def infer_binary_and_json(target: Target) -> Any:
    """One tensor this way and one that way, in request and answer, and of three outputs two."""
    inputs = [
        _input("a", np.array([[1, 2], [3, 4]], np.int32), binary_data=False),
        _input("s", samples.strings([b"a", b"\xff\0"])),
    ]
    outputs = [InferRequestedOutput("raw_bytes", binary_data=True), InferRequestedOutput("sum", binary_data=False)]
    return _infer(target, "pair", inputs, ["raw_bytes", "sum"], outputs=outputs)


def infer_of_a_version(target: Target) -> Any:
    answer = _client(target).infer("half", [_input("x", ONE)], "1", request_id="mine", headers=target.headers)
    found = answer.get_response()
    return [found["model_name"], found["model_version"], found["id"]]


def infer_every_dtype_binary(target: Target) -> Any:
    return {
        name: _infer(target, f"mirror_{name}", [_input("x", value)], ["y"])["y"]
        for name, value in samples.mirrored().items()
        if not name.startswith("complex")
    }


def infer_every_dtype_json(target: Target) -> Any:
    found = {}
    for name, value in samples.mirrored().items():
        if name.startswith("complex") or name.endswith("float16"):  # have no form in the protocol's JSON
            continue
        outputs = [InferRequestedOutput("y", binary_data=False)]
        given = [_input("x", value, binary_data=False)]
        found[name] = _infer(target, f"mirror_{name}", given, ["y"], outputs=outputs)["y"]
    return found


def infer_strings_that_are_no_text(target: Target) -> Any:
    return _infer(target, "shout", [_input("text", samples.strings([b"quiet", b"\xff\0", b""]))], ["loud", "size"])


def infer_six_megabytes(target: Target) -> Any:
    return _infer(target, "half", [_input("x", samples.large())], ["y"])


def infer_compressed(target: Target) -> Any:
    """Request and answer, in both codings that the client has."""
    return {
        coding: _infer(
            target,
            "half",
            [_input("x", samples.large())],
            ["y"],
            request_compression_algorithm=coding,
            response_compression_algorithm=coding,
        )["y"]
        for coding in ("gzip", "deflate")
    }


def infer_with_priority_and_timeout(target: Target) -> Any:
    return _infer(target, "half", [_input("x", ONE)], ["y"], priority=1, timeout=60_000_000)


def infer_past_its_timeout(target: Target) -> Any:
    given = [_input("seconds", np.array([1.5], np.float32))]
    return _refused(lambda: _infer(target, "slow", given, ["y"], timeout=500_000))


def infer_later(target: Target) -> Any:
    """Several calls at once, on connections of their own."""
    calls = [
        _client(target).async_infer("half", [_input("x", np.array([value], np.float32))], headers=target.headers)
        for value in range(8)
    ]
    return [call.get_result().as_numpy("y").tolist() for call in calls]


def statistics(target: Target) -> Any:
    """After the calls above."""
    return _client(target).get_inference_statistics("half", headers=target.headers)


def statistics_of_all(target: Target) -> Any:
    found = _client(target).get_inference_statistics(headers=target.headers)
    return sorted({one["name"] for one in found["model_stats"]})


def an_unknown_model(target: Target) -> Any:
    return _refused(lambda: _infer(target, "nobody", [_input("x", ONE)], ["y"]))


def an_unknown_output(target: Target) -> Any:
    outputs = [InferRequestedOutput("z")]
    return _refused(lambda: _infer(target, "half", [_input("x", ONE)], ["z"], outputs=outputs))


def another_dtype(target: Target) -> Any:
    return _refused(lambda: _infer(target, "half", [_input("x", np.array([1, 2]))], ["y"]))


def a_wrong_key(target: Target) -> Any:
    wrong = {"Authorization": f"Bearer {WRONG_KEY}"}
    return _refused(lambda: _infer(target, "half", [_input("x", ONE)], ["y"], headers=wrong))


def no_key(target: Target) -> Any:
    return _refused(lambda: _infer(target, "half", [_input("x", ONE)], ["y"], headers=None))


def shared_memory(target: Target) -> Any:
    return _refused(
        lambda: _client(target).register_system_shared_memory("region", "/region", 64, headers=target.headers)
    )


def load_and_unload(target: Target) -> Any:
    client = _client(target)
    return [
        _refused(lambda: client.load_model("half", headers=target.headers)),
        _refused(lambda: client.unload_model("half", headers=target.headers)),
    ]


if __name__ == "__main__":
    take(__name__)
