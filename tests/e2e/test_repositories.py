"""``signalbox up --repository ... --uploads ...``: models are served that lie in a bucket, or a folder, alone."""

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc.aio
import pytest

from gateway_plugin.proto.serving_pb2 import ReloadConfigRequest, ReloadConfigResponse
from signalbox.client import AsyncClient
from signalbox.ops.httppool import ConnectionPool, Response
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.program.errors import SignalboxError
from tests.conformance.clients.environments import environment
from tests.console.test_archives import archive_of
from tests.e2e.upprocess import EDGE, ROOT, Up
from tests.rigs import models
from tests.rigs.objectstore import ObjectStoreServer

NOTICED_S: Final = 120.0
_LONG_TO_VERIFY: Final = 64 << 20
"""Bytes."""
PAGE: Final = (ROOT / "docs" / "migrate.md").read_text()
TRITON: Final = PAGE.split("\n### ")[0]
SERVING: Final = PAGE.partition("\n## From TensorFlow Serving")[2].split("\n### ")[0]
CONFIG: Final = """
platform: "tensorflow_savedmodel"
max_batch_size: 16
input { name: "x" data_type: TYPE_FP32 dims: [ 8 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }
dynamic_batching { max_queue_delay_microseconds: 500 }
instance_group { count: 2 kind: KIND_GPU }
"""

SERVED: Final = """
model_config_list {
  config {
    name: 'half'
    base_path: '%(folder)s/half'
    model_platform: 'tensorflow'
    version_labels { key: 'stable' value: 1 }
  }
}
"""

MANAGER: Final = b'{"name": "ci", "scopes": ["jobs:submit", "jobs:read", "models:manage"]}'

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def bucket(object_store: ObjectStoreServer) -> str:
    name = object_store.bucket()
    object_store.put_folder(name, "fleet/half/1", models.half_plus_two())
    return name


@pytest.fixture(scope="module")
def up(bucket: str, object_store: ObjectStoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    places = ("--repository", f"s3://{bucket}/fleet", "--uploads", f"s3://{bucket}/uploads")
    data = tmp_path_factory.mktemp("up") / "data"
    started = Up(data, *EDGE, "--no-demo", *places, env=object_store.environment())
    try:
        started.wait_until_up()
        yield started
    finally:
        if started.process.poll() is None:
            started.end(signal.SIGTERM)


async def test_models_of_a_bucket_are_served_and_so_is_a_version_that_comes_later(
    up: Up, bucket: str, object_store: ObjectStoreServer
) -> None:
    async with _console(up) as console:
        assert (await console.repositories())["fleet"] == f"s3://{bucket}/fleet"
        await console.request("PATCH", "/api/repositories/fleet", b'{"settle_s": 0}')
        key = await console.create_key("consumer")
        async with AsyncClient(_doc(up)["front"], key) as client:
            assert await _answer(client, "half") == {"predictions": [2.5, 3.0, 4.5]}
            object_store.put_folder(bucket, "fleet/half/2", models.half_plus_two())
            assert await _answer(client, "half", version=2) == {"predictions": [2.5, 3.0, 4.5]}
    cache = up.data / "cache"
    held = sorted(path.relative_to(cache).as_posix() for path in cache.rglob("saved_model.pb"))
    assert held[:2] == ["fleet/half/1/saved_model.pb", "fleet/half/2/saved_model.pb"]


async def test_the_first_answer_of_a_model_says_how_long_it_was_fetched_verified_loaded_and_warmed_up(
    up: Up, bucket: str, object_store: ObjectStoreServer
) -> None:
    # Loaded ahead of need once its files are here; what a load does before the job is pulled is "queue" in its times.
    object_store.put(bucket, {"fleet/warmed/1/assets/large": bytes(_LONG_TO_VERIFY)})
    object_store.put_folder(bucket, "fleet/warmed/1", models.half_plus_two())
    async with _console(up) as console:
        await console.request("PATCH", "/api/repositories/fleet", b'{"settle_s": 0}')
        key = await console.create_key("of what is cold")
    async with ConnectionPool(_doc(up)["front"], headers={"Authorization": f"Bearer {key}"}) as front:
        first = await _accepted(front, "/v1/models/warmed:predict", b'{"instances": [1.0]}')
        later = await _accepted(front, "/v1/models/warmed:predict", b'{"instances": [1.0]}')
        job = json.loads((await front.request("GET", f"/v1/jobs/{first.headers['x-signalbox-job-id']}")).body)
    parts = _timing(first)
    assert parts.keys() >= {"fetch", "verify", "load", "warm", "run"}, parts
    assert all(parts[name] > 0 for name in ("fetch", "verify", "load", "warm"))
    assert _timing(later).keys().isdisjoint({"fetch", "verify", "load", "warm"}), "it was here"
    assert {one["part"]: one["ms"] for one in job["attempts"][0]["parts"]} == parts
    assert sum(parts.values()) == pytest.approx(job["timeline"][-1]["ms"], abs=0.1), "they are the whole time"


async def test_what_is_uploaded_is_answered_by_a_worker_that_shares_no_disk_with_the_console(
    up: Up, bucket: str
) -> None:
    place = f"s3://{bucket}/uploads"
    async with _console(up) as console:
        assert (await console.repositories())["uploads"] == place
        body, kind = _form(archive_of(models.half_plus_two()))
        answer = await console.request("POST", "/api/models/mine/versions", body, {"Content-Type": kind})
        assert answer.status in {201, 202}, answer.body
        listed = json.loads((await console.request("GET", "/api/models/mine/versions/1/files", b"")).body)
        key = await console.create_key("of what is uploaded")
    async with AsyncClient(_doc(up)["front"], key) as client:
        assert await _answer(client, "mine") == {"predictions": [2.5, 3.0, 4.5]}
    assert listed["place"] == f"{place}/mine/1"
    assert not list((up.data / "console").rglob("saved_model.pb")), "the console keeps none"
    assert (up.data / "cache" / "uploads" / "mine" / "1" / "saved_model.pb").is_file()


async def _accepted(front: ConnectionPool, path: str, body: bytes) -> Response:
    """The answer to the first request that is not of an unknown model."""
    async with asyncio.timeout(NOTICED_S):
        while True:
            answer = await front.request("POST", path, body)
            if answer.status != 404:
                assert answer.status == 200, answer.body
                return answer
            await asyncio.sleep(0.2)  # the console's own pace


def _timing(answer: Response) -> dict[str, float]:
    parts = (part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    return {name: float(ms) for name, ms in parts}


def _doc(up: Up) -> dict[str, Any]:
    doc: dict[str, Any] = json.loads((up.data / "up.json").read_text())
    return doc


def _console(up: Up) -> ConsoleClient:
    return ConsoleClient(_doc(up)["console"], (up.data / "secrets" / "operator_token").read_text())


def _form(archive: bytes) -> tuple[bytes, str]:
    """An upload as a browser sends it, and its content type."""
    head = 'Content-Disposition: form-data; name="archive"; filename="half.tar.gz"'
    body = f"--part\r\n{head}\r\nContent-Type: application/gzip\r\n\r\n".encode() + archive + b"\r\n--part--\r\n"
    return body, "multipart/form-data; boundary=part"


async def _answer(client: AsyncClient, model: str, version: int | None = None) -> dict[str, Any]:
    """As soon as the model is noticed, fetched and loaded."""
    async with asyncio.timeout(NOTICED_S):
        while True:
            try:
                return await client.predict(model, instances=[1.0, 2.0, 5.0], version=version)
            except SignalboxError:
                await asyncio.sleep(0.5)  # the console's own pace


@pytest.fixture
def tritons(tmp_path: Path) -> Path:
    """A model repository of Triton's, with a model that is no SavedModel beside."""
    folder = tmp_path / "tritons"
    shutil.copytree(models.weigh(), folder / "weigh" / "1" / "model.savedmodel")
    (folder / "weigh" / "config.pbtxt").write_text(CONFIG)
    (folder / "other" / "1").mkdir(parents=True)
    (folder / "other" / "1" / "model.onnx").write_bytes(b"onnx")
    (folder / "other" / "config.pbtxt").write_text('platform: "onnxruntime_onnx"')
    return folder


def _fenced(language: str, page: str) -> list[str]:
    """What stands in a page's blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


async def test_a_user_of_triton_moves_by_the_page_s_commands(tritons: Path, tmp_path: Path) -> None:
    made = environment("triton")
    if made.python is None:
        pytest.skip(f"the packages of triton cannot be had: {made.missing}")
    start, *rest = "".join(_fenced("sh", TRITON)).splitlines()
    assert len(rest) <= 4
    arguments = shlex.split(start)[-1].removeprefix("ARGS=").replace("file:///models", f"file://{tritons}")
    (program,) = _fenced("python", TRITON)
    (tmp_path / "client.py").write_text(program)
    shutil.copytree(models.demonstration(), tmp_path / ".signalbox" / "models")
    up = Up(tmp_path / ".signalbox", *EDGE, *shlex.split(arguments))
    try:
        doc = await asyncio.to_thread(up.wait_until_up)
        token = (up.data / "secrets" / "operator_token").read_text()
        async with ConsoleClient(doc["console"], token) as console:
            await console.request("PATCH", "/api/repositories/tritons", b'{"settle_s": 0}')
            said = await asyncio.to_thread(_run, "\n".join(rest), tmp_path, made.python.parent)
            assert said.splitlines()[-1] == program.rstrip().rpartition("  # ")[2]
            model = json.loads((await console.request("GET", "/api/models/weigh")).body)
            repository = json.loads((await console.request("GET", "/api/repositories/tritons")).body)
    finally:
        if up.process.poll() is None:
            up.end(signal.SIGTERM)
    settings = {name: model[name] for name in ("max_batch_size", "max_batch_delay_ms", "rows_independent")}
    assert settings == {"max_batch_size": 16, "max_batch_delay_ms": 0.5, "rows_independent": True}
    assert (model["config"]["left"], model["config"]["differences"]) == (["instance_group"], [])
    assert repository["left"] == {"weigh": ["instance_group"]}
    assert [(path, "is ONNX" in why) for path, why in repository["refused"].items()] == [("other", True)]


async def test_a_user_of_tensorflow_serving_moves_by_the_page_s_commands(tmp_path: Path) -> None:
    start, *rest = "".join(_fenced("sh", SERVING)).splitlines()
    assert len(rest) <= 4
    for number in ("1", "2"):
        shutil.copytree(models.half_plus_two(), tmp_path / "served" / "half" / number)
    (tmp_path / "models.config").write_text(SERVED % {"folder": tmp_path / "served"})
    (tmp_path / "batching.config").write_text("max_batch_size { value: 64 } num_batch_threads { value: 4 }")
    arguments = shlex.split(start)[-1].removeprefix("ARGS=").replace("/models", str(tmp_path / "served"))
    shutil.copytree(models.demonstration(), tmp_path / ".signalbox" / "models")
    up = Up(tmp_path / ".signalbox", *EDGE, *shlex.split(arguments))
    try:
        doc = await asyncio.to_thread(up.wait_until_up)
        commands = "\n".join(rest).replace(".venv/bin/signalbox", f"{sys.executable} -m signalbox")
        said = await asyncio.to_thread(_run, commands, tmp_path, Path(sys.executable).parent)
        token = (up.data / "secrets" / "operator_token").read_text()
        async with ConsoleClient(doc["console"], token) as console:
            model = json.loads((await console.request("GET", "/api/models/half")).body)
            made = json.loads((await console.request("POST", "/api/keys", MANAGER)).body)
        await _load_and_unload(doc, str(made["key"]))
    finally:
        if up.process.poll() is None:
            up.end(signal.SIGTERM)
    assert json.loads(said[said.rindex("{") :]) == {"predictions": [2.5, 3.0, 4.5]}
    assert re.search(r"^half +version_labels.stable +leads to version 1$", said, re.MULTILINE), said
    assert re.search(r"^half +num_batch_threads +not taken over: ", said, re.MULTILINE), said
    assert (model["policy"], model["labels"]) == ({"kind": "latest", "count": 1}, {"stable": 1})
    assert (model["max_batch_size"], model["rows_independent"]) == (64, True)


async def _load_and_unload(doc: dict[str, Any], key: str) -> None:
    """As with Triton's explicit model control, and TensorFlow Serving's reload, by a key that may."""
    load, unload = "/v2/repository/models/half/load", "/v2/repository/models/half/unload"
    predict = "/v1/models/half:predict"
    async with ConnectionPool(doc["front"], headers={"Authorization": f"Bearer {key}"}, timeout_s=NOTICED_S) as front:
        # Whatever was loaded by the predictions before: the answer to a load is that it is in memory.
        for path, body, status in (
            (unload, b"", 200),
            (predict, b'{"instances": [1.0]}', 503),
            (load, b"{}", 200),
            (predict, b'{"instances": [1.0]}', 200),
        ):
            answer = await front.request("POST", path, body)
            assert answer.status == status, (path, answer.body)
        missing = await front.request("POST", "/v2/repository/models/nothing/load", b"")
        assert (missing.status, b"no model" in missing.body) == (404, True)
    request = ReloadConfigRequest()
    one = request.config.model_config_list.config.add(name="half", version_labels={"canary": 2})
    one.model_version_policy.all.SetInParent()
    async with grpc.aio.insecure_channel(doc["grpc"]) as channel:
        call = channel.unary_unary(
            "/tensorflow.serving.ModelService/HandleReloadConfigRequest",
            request_serializer=ReloadConfigRequest.SerializeToString,
            response_deserializer=ReloadConfigResponse.FromString,
        )
        metadata = (("authorization", f"Bearer {key}"),)
        assert (await call(request, metadata=metadata, timeout=NOTICED_S)).status.error_code == 0
        request.config.model_config_list.config.add(name="digits")
        with pytest.raises(grpc.aio.AioRpcError, match="not made by an import"):
            await call(request, metadata=metadata, timeout=NOTICED_S)


def _run(commands: str, folder: Path, python: Path) -> str:
    """What the commands print in ``folder``, where ``python3`` is that of a client's environment."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env={"PATH": f"{python}:{os.environ['PATH']}", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=NOTICED_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
