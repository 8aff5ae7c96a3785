"""TensorFlow Serving's REST API as its own documentation calls it, with ``requests``."""

import gzip
import json
from typing import Any

import numpy as np
import requests

from tests.conformance.clients import samples
from tests.conformance.clients.steps import WRONG_KEY, Target, take, tensor

TIMEOUT_S = 60.0


def _post(target: Target, path: str, body: Any, **more: Any) -> Any:
    """The answer's JSON; raises where its status is an error."""
    given = {"data": json.dumps(body), "headers": target.headers, **more}
    answer = requests.post(f"{target.url}/v1/models/{path}", timeout=TIMEOUT_S, **given)
    answer.raise_for_status()
    return answer.json()


def _get(target: Target, path: str) -> Any:
    answer = requests.get(f"{target.url}/v1/models/{path}", headers=target.headers, timeout=TIMEOUT_S)
    answer.raise_for_status()
    return answer.json()


def _refused(target: Target, path: str, body: Any, **more: Any) -> dict[str, Any]:
    """Status and text of a call that must fail."""
    try:
        return {"answered": _post(target, path, body, **more)}
    except requests.HTTPError as error:
        return {"code": error.response.status_code, "text": error.response.json()["error"]}


def predict_rows(target: Target) -> Any:
    return _post(target, "half:predict", {"instances": [1.0, 2.0, 5.0]})


def predict_columns(target: Target) -> Any:
    body = {"signature_name": "serving_default", "inputs": {"a": [[1, 2], [3, 4]], "s": ["a", "b"]}}
    return _post(target, "pair:predict", body)


def predict_of_a_label_and_of_a_version(target: Target) -> Any:
    body = {"instances": [1.0]}
    return [_post(target, f"half/{which}:predict", body) for which in ("labels/stable", "versions/2")]


def predict_with_the_client_s_own_json(target: Target) -> Any:
    answer = requests.post(
        f"{target.url}/v1/models/half:predict", json={"instances": [1.0]}, headers=target.headers, timeout=TIMEOUT_S
    )
    return [answer.status_code, answer.headers["content-type"], answer.json()]


def predict_on_one_connection(target: Target) -> Any:
    with requests.Session() as session:
        session.headers.update(target.headers)
        asked = (
            session.post(f"{target.url}/v1/models/half:predict", json={"instances": [value]}, timeout=TIMEOUT_S)
            for value in range(8)
        )
        return [answer.json()["predictions"] for answer in asked]


def predict_every_dtype(target: Target) -> Any:
    """The mirror's arrays as JSON says them, and its answers as arrays again."""
    given = samples.mirrored()
    answer = _post(
        target, "mirror:predict", {"inputs": {f"x_{name}": samples.plain(value) for name, value in given.items()}}
    )
    return {name: tensor(samples.like(value, answer["outputs"][f"y_{name}"])) for name, value in given.items()}


def predict_six_megabytes(target: Target) -> Any:
    answer = _post(target, "half:predict", {"instances": samples.large().tolist()})
    return tensor(np.array(answer["predictions"], np.float32))


def predict_compressed(target: Target) -> Any:
    body = gzip.compress(json.dumps({"instances": samples.large().tolist()}).encode())
    headers = {**target.headers, "Content-Encoding": "gzip"}
    answer = _post(target, "half:predict", None, data=body, headers=headers)
    return tensor(np.array(answer["predictions"], np.float32))


def classify(target: Target) -> Any:
    return _post(target, "scorer:classify", {"examples": [{"x": 20.0}, {"x": 4.0}]})


def regress(target: Target) -> Any:
    body = {"signature_name": "regress", "context": {"k": 100}, "examples": [{"x": 80.0}, {"x": 2.0}]}
    return _post(target, "scorer:regress", body)


def status(target: Target) -> Any:
    return _get(target, "half")


def metadata(target: Target) -> Any:
    found = _get(target, "pair/metadata")["metadata"]["signature_def"]["signature_def"]
    return sorted(found["serving_default"]["inputs"])


def an_unknown_model(target: Target) -> Any:
    return _refused(target, "nobody:predict", {"instances": [1.0]})


def another_type(target: Target) -> Any:
    return _refused(target, "half:predict", {"instances": [1.0, "a"]})


def a_wrong_key(target: Target) -> Any:
    headers = {"Authorization": f"Bearer {WRONG_KEY}"}
    return _refused(target, "half:predict", {"instances": [1.0]}, headers=headers)


def no_key(target: Target) -> Any:
    return _refused(target, "half:predict", {"instances": [1.0]}, headers={})


if __name__ == "__main__":
    take(__name__)
