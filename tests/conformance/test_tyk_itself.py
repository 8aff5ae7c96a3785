"""What only a real Tyk has: Redis, a control API, sessions on disk, a reload."""

import base64
import subprocess
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from signalbox.ops.ports import HOST
from tests.conformance.conftest import Front, FrontMaker

pytestmark = pytest.mark.tyk
KINDS = ["tyk"]
SECRET = {"x-tyk-authorization": "conformance"}


def redis(front: Front, *words: str) -> str:
    """What redis-cli prints for a command."""
    asked = subprocess.run(
        ["redis-cli", "-h", HOST, "-p", str(front.redis_port), *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return asked.stdout


def test_health_and_readiness_are_on_the_control_port(front: Front) -> None:
    for path in ("/hello", "/ready"):
        document = front.client.get(front.control_url + path).json()
        assert document["status"] == "pass"


def test_control_api_is_not_on_the_public_port(front: Front) -> None:
    assert front.client.get(front.control_url + "/tyk/apis", headers=SECRET).status_code == 200
    assert front.client.get(front.control_url + "/tyk/apis").status_code == 403
    seen = front.seen(path="/tyk/apis", headers=SECRET)
    assert seen["hook_name"] == "SignalboxPost"


def test_a_path_that_begins_with_an_api_s_id_goes_on_as_it_came(front: Front) -> None:
    """Tyk takes it for the API's own; of one without a key it must not become a path that needs one."""
    path = "/signalbox-inference-health/v2/models/m/infer"
    assert front.client.get(front.url + path).json()["url"] == path


def test_requests_go_on_through_reloads(front: Front) -> None:
    for _ in range(10):
        assert front.client.get(front.control_url + "/tyk/reload", headers=SECRET).is_success
        assert front.ask().status_code == 200


def test_session_names_are_sha256_and_redis_holds_no_secret(front: Front) -> None:
    secret = f"sb_live_{uuid.uuid4().hex}"
    names = [f"k-{uuid.uuid4()}" for _ in range(2)]
    before = set(redis(front, "KEYS", "*").split())
    for name in names:
        auth = {"id": name, "session": {"quota_max": 5, "quota_renewal_rate": 60}}
        headers = {"Authorization": f"Bearer {secret}"}
        assert front.ask({"auth": auth}, headers=headers).status_code == 200
    added = set(redis(front, "KEYS", "*").split()) - before
    for prefix in ("apikey-", "quota-"):
        hashes = [name.removeprefix(prefix) for name in added if name.startswith(prefix)]
        assert sorted(map(len, hashes)) == [64, 64]
    for name in added:
        held = redis(front, "GET", name) if redis(front, "TYPE", name) == "string\n" else ""
        assert secret not in held
        assert base64.b64encode(secret.encode()).decode() not in held


def test_sessions_leave_redis_within_an_hour(front: Front) -> None:
    front.ask({"auth": {"id": f"k-{uuid.uuid4()}"}})
    names = [n for n in redis(front, "KEYS", "apikey-*").split() if n]
    lives = [int(redis(front, "TTL", name)) for name in names]
    assert lives
    assert all(0 < life <= 3600 for life in lives)


def test_requests_go_on_without_redis_but_quotas_are_refused(new_front: FrontMaker) -> None:
    with new_front() as front:
        assert front.redis is not None
        free = {"auth": {"id": "k-free", "session": {"rate": 100, "per": 1, "last_updated": "1"}}}
        counted = {"auth": {"id": "k-quota", "session": {"quota_max": 50}}}
        assert front.ask(free).status_code == 200
        assert front.ask(counted).status_code == 200
        front.redis.stop()
        for _ in range(3):
            assert front.ask(free).status_code == 200
        refused = front.ask(counted)
        assert (refused.status_code, refused.json()["code"]) == (429, "limit_exceeded")
        assert front.client.get(front.url + "/hello").status_code == 200
        assert _becomes(front, "/ready", 503)
        front.redis.start()
        assert _becomes(front, "/ready", 200)
        assert front.ask(free).status_code == 200
        assert front.ask(counted).status_code == 200


def test_gateway_that_starts_without_redis_still_answers(new_front: FrontMaker) -> None:
    with new_front() as front:
        assert front.redis is not None
        front.gateway.stop()
        front.redis.stop()
        front.gateway.start()
        assert front.ask({"auth": {"id": "k-free"}}).status_code in {200, 503}
        front.redis.start()
        assert _becomes(front, "/ready", 200)
        assert front.ask({"auth": {"id": "k-free"}}).status_code == 200


def test_gateway_that_starts_is_not_there_until_its_apis_are_loaded(new_front: FrontMaker) -> None:
    """Its own 404 would be final to a caller."""
    with new_front() as front, ThreadPoolExecutor(1) as pool:
        front.gateway.stop()
        is_started = threading.Event()
        asking = pool.submit(_statuses_until, front, is_started)
        front.gateway.start()
        is_started.set()
        found = asking.result()
        assert found[0] > 0
        assert set(found) == {0, 200}


def test_without_its_hooks_the_gateway_lets_nobody_through(new_front: FrontMaker) -> None:
    with new_front(COPROCESSOPTIONS_ENABLECOPROCESS="false") as front:
        for headers in ({}, {"Authorization": "Bearer something"}):
            assert front.ask(headers=headers).status_code in {400, 401, 403, 503}


def _becomes(front: Front, path: str, status: int) -> bool:
    """Whether the control port answers ``status`` within ten seconds; asked over and over."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if front.client.get(front.control_url + path).status_code == status:
            return True
    return False


def _statuses_until(front: Front, ended: threading.Event) -> Counter[int]:
    """Statuses of ``/hello``, asked over and over until after the end; 0 where nobody took the connection."""
    found: Counter[int] = Counter()
    with httpx.Client(timeout=60) as client:
        is_last = False
        while not is_last:
            is_last = ended.is_set()
            try:
                found[client.get(front.url + "/hello").status_code] += 1
            except httpx.TransportError:
                found[0] += 1
    return found
