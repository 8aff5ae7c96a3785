"""``signalbox up`` under load, and a Prometheus that scrapes all its programs."""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from signalbox.ops.ports import HOST, free_port
from tests.e2e.upprocess import EDGE, ROOT, Up
from tests.rigs import models
from tests.rigs.objectstore import ObjectStoreServer
from tests.rigs.prometheus import Prometheus

PROGRAMS: Final = 7
"""Of the stack, each with a port for its metrics behind the one before."""
PAUSE_S: Final = 0.5
EVENTFUL: Final = 20
"""Rounds of calls between two new versions."""
CALL_S: Final = 60.0


@contextlib.contextmanager
def observed(folder: Path, store: ObjectStoreServer) -> Iterator[Prometheus]:
    """A stack with the demonstration's models and one in a bucket, all of them called, until the end."""
    data = folder / "data"
    shutil.copytree(models.demonstration(), data / "models")
    bucket = store.bucket()

    def publish(version: int) -> None:
        store.put_folder(bucket, f"fleet/half/{version}", models.half_plus_two())

    publish(1)
    env = {**store.environment(), "SIGNALBOX_METRICS_PORT": str(_ports())}
    up = Up(data, *EDGE, "--repository", f"s3://{bucket}/fleet", env=env)
    try:
        doc = up.wait_until_up()
        token = (data / "secrets" / "operator_token").read_text()
        assert len(doc["metrics"]) == PROGRAMS
        with Prometheus(folder / "prometheus", doc["metrics"]) as prometheus, _demo(data), _calls(doc, token, publish):
            yield prometheus
    finally:
        if up.process.poll() is None:
            up.end(signal.SIGINT)


def _ports() -> int:
    """A port before others that are free."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + PROGRAMS):
                    stack.enter_context(socket.socket()).bind((HOST, port))
            except OSError:
                continue
            return first


@contextlib.contextmanager
def _demo(data: Path) -> Iterator[None]:
    argv = [sys.executable, "-m", "signalbox", "demo", "--data", str(data), "--rate", "10", "--slow", "1"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL) as demo:
        try:
            yield
        finally:
            demo.terminate()


@contextlib.contextmanager
def _calls(doc: dict[str, Any], token: str, publish: Callable[[int], None]) -> Iterator[None]:
    """What the demonstration does not do: a model in a bucket, bad requests, keys that are none; now and then a new
    version, and another holder of the device."""
    ended = threading.Event()
    thread = threading.Thread(target=_call, args=(doc, token, publish, ended), name="calls")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _call(doc: dict[str, Any], token: str, publish: Callable[[int], None], ended: threading.Event) -> None:
    front, key, console = doc["front"], doc["api_key"], doc["console"]
    _ask("PATCH", f"{console}/api/repositories/fleet", token, {"settle_s": 0})
    rounds = 0
    while not ended.wait(PAUSE_S):
        _ask("POST", f"{front}/v1/models/half:predict", key, {"instances": [1.0, 2.0]})
        _ask("POST", f"{front}/v1/models/half:predict", key, {"instances": "none"})
        _ask("POST", f"{front}/v1/models/half:predict", "no-key", {"instances": [1.0]})
        _ask("POST", f"{console}/api/jobs", "no-token", {})
        rounds += 1
        if rounds % EVENTFUL == 0:
            publish(1 + rounds // EVENTFUL)
            for worker in ("worker-1", "worker-2"):
                _ask("POST", f"{console}/api/workers/{worker}/release", token, {"reason": "to see a hand-over"})


def _ask(method: str, url: str, key: str, body: object) -> None:
    """One request; what is refused is refused."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)  # noqa: S310  our own
    try:
        with urllib.request.urlopen(request, timeout=CALL_S) as answer:  # noqa: S310  see above
            answer.read()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        pass  # the stack is about to end
