"""The Open Inference Protocol over gRPC as ``tritonclient.grpc`` speaks it."""

import contextlib
import functools
import queue
from collections.abc import Callable
from typing import Any

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.conformance.clients import samples
from tests.conformance.clients.steps import WRONG_KEY, Target, take, tensor

ONE = np.array([1.0, 2.0, 5.0], np.float32)
LATER_S = 60.0


@functools.cache
def _client(target: Target) -> Any:
    return InferenceServerClient(target.grpc)


def _headers(target: Target) -> dict[str, str]:
    """This client's headers are gRPC's metadata: their names have no capitals."""
    return dict(target.metadata)


def _input(name: str, value: Any) -> Any:
    made = InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
    made.set_data_from_numpy(value)
    return made


def _infer(target: Target, model: str, inputs: list[Any], shown: list[str], **more: Any) -> dict[str, Any]:
    """What an answer has under the names ``shown``."""
    answer = _client(target).infer(model, inputs, **{"headers": _headers(target), **more})
    return {name: tensor(answer.as_numpy(name)) for name in shown}


def _refused(call: Callable[[], Any]) -> dict[str, Any]:
    """Status and text of a call that must fail."""
    try:
        return {"answered": str(call())}
    except InferenceServerException as error:
        return {"code": (error.status() or "").removeprefix("StatusCode."), "text": error.message()}


def health(target: Target) -> Any:
    client = _client(target)
    return [client.is_server_live(), client.is_server_ready()]


def model_ready(target: Target) -> Any:
    client = _client(target)
    return [client.is_model_ready(*which, headers=_headers(target)) for which in (["half"], ["half", "2"], ["nobody"])]


def server_metadata(target: Target) -> Any:
    return _client(target).get_server_metadata(headers=_headers(target), as_json=True)


def model_metadata(target: Target) -> Any:
    return _client(target).get_model_metadata("pair", headers=_headers(target), as_json=True)


def model_config(target: Target) -> Any:
    return _client(target).get_model_config("pair", headers=_headers(target), as_json=True)["config"]


def repository_index(target: Target) -> Any:
    return _client(target).get_model_repository_index(headers=_headers(target), as_json=True)["models"]


def infer(target: Target) -> Any:
    return _infer(target, "half", [_input("x", ONE)], ["y"])


def infer_some_outputs(target: Target) -> Any:
    inputs = [_input("a", np.array([[1, 2], [3, 4]], np.int32)), _input("s", samples.strings([b"a", b"\xff\0"]))]
    outputs = [InferRequestedOutput("raw_bytes"), InferRequestedOutput("sum")]
    answer = _client(target).infer("pair", inputs, outputs=outputs, headers=_headers(target))
    names = [one.name for one in answer.get_response().outputs]
    return {name: tensor(answer.as_numpy(name)) for name in names}


def infer_of_a_version(target: Target) -> Any:
    answer = _client(target).infer("half", [_input("x", ONE)], "1", request_id="mine", headers=_headers(target))
    found = answer.get_response()
    return [found.model_name, found.model_version, found.id]


def infer_every_dtype(target: Target) -> Any:
    return {
        name: _infer(target, f"mirror_{name}", [_input("x", value)], ["y"])["y"]
        for name, value in samples.mirrored().items()
        if not name.startswith("complex")
    }


def infer_strings_that_are_no_text(target: Target) -> Any:
    return _infer(target, "shout", [_input("text", samples.strings([b"quiet", b"\xff\0", b""]))], ["loud", "size"])


def infer_six_megabytes(target: Target) -> Any:
    return _infer(target, "half", [_input("x", samples.large())], ["y"])


def infer_compressed(target: Target) -> Any:
    return _infer(target, "half", [_input("x", samples.large())], ["y"], compression_algorithm="gzip")


def infer_with_priority_and_timeout(target: Target) -> Any:
    return _infer(target, "half", [_input("x", ONE)], ["y"], priority=1, timeout=60_000_000)


def infer_past_its_timeout(target: Target) -> Any:
    given = [_input("seconds", np.array([1.5], np.float32))]
    return _refused(lambda: _infer(target, "slow", given, ["y"], timeout=500_000))


def infer_past_the_client_s_own_timeout(target: Target) -> Any:
    given = [_input("seconds", np.array([1.5], np.float32))]
    return _refused(lambda: _infer(target, "slow", given, ["y"], client_timeout=0.5))


def infer_later(target: Target) -> Any:
    """Several calls at once, each with a callback."""
    ended: queue.Queue[tuple[float, Any, Any]] = queue.Queue()
    for value in range(8):

        def end(result: Any, error: Any, value: float = value) -> None:
            ended.put((value, result, error))

        given = [_input("x", np.array([value], np.float32))]
        _client(target).async_infer("half", given, callback=end, headers=_headers(target))
    found = sorted((ended.get(timeout=LATER_S) for _ in range(8)), key=lambda one: one[0])
    return [str(error) if error else result.as_numpy("y").tolist() for _, result, error in found]


def statistics(target: Target) -> Any:
    """After the calls above."""
    return _client(target).get_inference_statistics("half", headers=_headers(target), as_json=True)


def an_unknown_model(target: Target) -> Any:
    return _refused(lambda: _infer(target, "nobody", [_input("x", ONE)], ["y"]))


def an_unknown_output(target: Target) -> Any:
    outputs = [InferRequestedOutput("z")]
    return _refused(lambda: _infer(target, "half", [_input("x", ONE)], ["z"], outputs=outputs))


def another_dtype(target: Target) -> Any:
    return _refused(lambda: _infer(target, "half", [_input("x", np.array([1, 2]))], ["y"]))


def a_wrong_key(target: Target) -> Any:
    wrong = {"authorization": f"Bearer {WRONG_KEY}"}
    return _refused(lambda: _infer(target, "half", [_input("x", ONE)], ["y"], headers=wrong))


def no_key(target: Target) -> Any:
    return _refused(lambda: _infer(target, "half", [_input("x", ONE)], ["y"], headers=None))


def shared_memory(target: Target) -> Any:
    return _refused(
        lambda: _client(target).register_system_shared_memory("region", "/region", 64, headers=_headers(target))
    )


def load_and_unload(target: Target) -> Any:
    client = _client(target)
    return [
        _refused(lambda: client.load_model("half", headers=_headers(target))),
        _refused(lambda: client.unload_model("half", headers=_headers(target))),
    ]


def stream(target: Target) -> Any:
    """What the stream's callback gets: behind Tyk, which holds a stream until its client has sent all, at its end."""
    ended: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with InferenceServerClient(target.grpc) as client:
        client.start_stream(callback=lambda result, error: ended.put((result, error)), headers=_headers(target))
        with contextlib.suppress(InferenceServerException):  # where it was refused already
            client.async_stream_infer("half", [_input("x", ONE)])
        client.stop_stream()
        result, error = ended.get(timeout=LATER_S)
        return {"answered": str(result)} if error is None else {"code": error.status(), "text": error.message()}


if __name__ == "__main__":
    take(__name__)
