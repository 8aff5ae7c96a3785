"""What clients see when something behind a Tyk is slow, gone or cut off."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.conformance.conftest import Front, FrontMaker

pytestmark = pytest.mark.tyk
KINDS = ["tyk"]
AWAY = {"unavailable", "ambiguous"}


def leave(front: Front, probe: dict[str, object], tag: str) -> float:
    """Sends a request, leaves once the plugin works on it; seconds until the plugin was cancelled."""
    with ThreadPoolExecutor(1) as pool, httpx.Client(timeout=httpx.Timeout(30)) as client:
        waiting = httpx.Client(timeout=httpx.Timeout(30))
        headers = {"X-Probe": json.dumps(probe)}
        sent = pool.submit(waiting.get, front.url + "/v1/probe", headers=headers)
        ask = {"X-Probe": json.dumps({"post": {"was_started": tag}})}
        assert client.get(front.url + "/v1/probe", headers=ask).status_code == 200
        left_at = time.monotonic()
        _hang_up(waiting)
        ask = {"X-Probe": json.dumps({"post": {"was_cancelled": tag}})}
        assert client.get(front.url + "/v1/probe", headers=ask).status_code == 200
        took_s = time.monotonic() - left_at
        with pytest.raises(httpx.TransportError):
            sent.result(10)
        waiting.close()
    return took_s


def _hang_up(client: httpx.Client) -> None:
    """Closes the socket of the one connection a client has, in the middle of its request."""
    transport = client._transport
    assert isinstance(transport, httpx.HTTPTransport)
    (connection,) = transport._pool.connections
    stream = connection._connection._network_stream  # type: ignore[attr-defined]
    link = stream.get_extra_info("socket")
    link.shutdown(2)


@pytest.mark.parametrize("hook", ["auth", "post"])
def test_client_that_leaves_ends_the_call_within_a_second(front: Front, hook: str) -> None:
    tag = f"leaves-{hook}"
    assert leave(front, {"tag": tag, hook: {"wait": 60}}, tag) < 1.0


def test_waiting_client_gets_its_answer(front: Front) -> None:
    """Its own, whole, and of one call: two wait at once, and each has another answer to wait for."""

    def ask(name: str) -> httpx.Response:
        answer = {"status": 202, "body": name * 1000, "headers": {"X-Answer": name}}
        return front.ask({"tag": f"waits-{name}", "post": {"wait": 3, **answer}})

    with ThreadPoolExecutor(2) as pool:
        answers = dict(zip("ab", pool.map(ask, "ab"), strict=True))
    for name, got in answers.items():
        assert (got.status_code, got.text, got.headers["x-answer"]) == (202, name * 1000, name)
        assert front.seen({"post": {"calls_of": f"waits-{name}"}})["calls"] == {"auth": 1, "post": 1}


def test_answer_later_than_the_write_timeout_never_comes(new_front: FrontMaker, files: Path) -> None:
    conf = json.loads((files / "tyk.conf").read_bytes())
    conf["http_server_options"]["write_timeout"] = 2
    (files / "tyk.conf").write_text(json.dumps(conf))
    with new_front(files) as front:
        with pytest.raises(httpx.RemoteProtocolError):
            front.ask({"post": {"wait": 4}})
        assert front.ask({"post": {"wait": 0.5}}).status_code == 200


def test_dead_plugin_is_503_with_retry_after_and_back_soon(new_front: FrontMaker) -> None:
    with new_front() as front:
        assert front.ask().status_code == 200
        front.plugin.kill()
        for _ in range(5):
            refused = front.ask()
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["code"] in AWAY
        front.plugin.start()
        assert _seconds_until_ok(front) < 5.0


def test_plugin_killed_in_mid_call_fails_that_call_only(new_front: FrontMaker) -> None:
    with new_front() as front, ThreadPoolExecutor(1) as pool:
        sent = pool.submit(front.ask, {"tag": "mid", "post": {"wait": 60}})
        with httpx.Client() as client:
            ask = {"X-Probe": json.dumps({"post": {"was_started": "mid"}})}
            assert client.get(front.url + "/v1/probe", headers=ask).status_code == 200
        front.plugin.kill()
        refused = sent.result(10)
        assert (refused.status_code, refused.json()["code"]) == (503, "ambiguous")
        assert front.gateway.is_alive
        front.plugin.start()
        assert _seconds_until_ok(front) < 5.0


def test_no_call_is_answered_wrongly_while_the_plugin_comes_and_goes(new_front: FrontMaker) -> None:
    with new_front() as front:
        stop = threading.Event()
        good = threading.Semaphore(0)
        seen: set[int] = set()

        def load() -> None:
            with httpx.Client(timeout=60) as client:
                while not stop.is_set():
                    status = client.post(front.url + "/v1/probe", content=b"x").status_code
                    seen.add(status)
                    if status == 200:
                        good.release()

        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(load) for _ in range(8)]
            try:
                for _ in range(3):
                    front.plugin.kill()
                    front.plugin.start()
                    assert _seconds_until_ok(front) < 5.0
                    assert all(good.acquire(timeout=10) for _ in range(100))
            finally:
                stop.set()
            for each in running:
                each.result(30)
        assert seen == {200, 503}


def _seconds_until_ok(front: Front) -> float:
    began = time.monotonic()
    while time.monotonic() - began < 30:
        if front.ask().status_code == 200:
            return time.monotonic() - began
    return float("inf")
