"""Many passwords at once: counted before they are looked at, hashed a few at a time, and other requests do not wait."""

import http.client
import re
import subprocess
import threading
import time
import urllib.parse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection as database
from django.test import Client
from msgspec.structs import replace

from console.accounts.models import LoginFailure, User
from console.config import ConsoleSettings
from console.operators import hashing, throttle
from signalbox.program.errors import LimitExceeded, Unavailable
from tests.console.conftest import PASSWORD, submit
from tests.console.test_serve import PASSWORD as SERVED_PASSWORD
from tests.console.test_serve import Visitor, served

__all__ = ["served"]
AT_ONCE = 40
HASH_BYTES = 102_400 * 1024


class Caller:
    """One who calls from an address of its own, with the token of the login form."""

    def __init__(self, visitor: Visitor, address: str) -> None:
        self._netloc = urllib.parse.urlsplit(visitor.base).netloc
        self._from = address
        page, self._cookie = self._call("GET", "/login")[1:]
        found = re.search(rb'csrfmiddlewaretoken" value="([^"]+)', page)
        assert found
        self._token = found[1].decode()

    def log_in(self, username: str, password: str) -> str:
        """What came of it: ``in``, ``judged``, ``throttled`` or ``busy``."""
        form = {"username": username, "password": password, "csrfmiddlewaretoken": self._token}
        status, page, _ = self._call("POST", "/login", urllib.parse.urlencode(form))
        if status == 200:
            return "throttled" if b"Too many failed logins" in page else "judged"
        return {302: "in", 503: "busy"}[status]

    def health(self) -> int:
        """Status of the console's health."""
        return self._call("GET", "/healthz")[0]

    def _call(self, method: str, path: str, body: str = "") -> tuple[int, bytes, str]:
        connection = http.client.HTTPConnection(self._netloc, timeout=60, source_address=(self._from, 0))
        headers = {"Host": self._netloc}
        if body:
            headers |= {"Cookie": self._cookie, "Content-Type": "application/x-www-form-urlencoded"}
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
            return answer.status, answer.read(), cookie
        finally:
            connection.close()


def may_be_judged(seconds: float) -> int:
    """Attempts that the throttle lets through in so long: five, and one more after each wait that fits."""
    limit = settings.CONSOLE.login_per_account
    count = limit
    while (seconds := seconds - throttle.wait_s(count, limit)) >= 0:
        count += 1
    return count


def highest(process: "subprocess.Popen[bytes]") -> int:
    """Bytes of memory that the process ever had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def test_of_forty_wrong_logins_at_once_five_are_judged_and_another_gets_in_meanwhile(
    served: tuple[Visitor, str, "subprocess.Popen[bytes]"],
) -> None:
    visitor, _, process = served
    stranger, owner = Caller(visitor, "127.0.0.2"), Caller(visitor, "127.0.0.3")
    assert owner.log_in("admin", SERVED_PASSWORD) == "in"
    before, began = highest(process), time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [pool.submit(stranger.log_in, "admin", "wrong") for _ in range(AT_ONCE)]
        assert owner.health() == 200
        assert owner.log_in("admin", SERVED_PASSWORD) == "in"
        found = Counter(each.result() for each in wrong)
    most = may_be_judged(time.monotonic() - began)
    assert found["judged"] <= most
    assert found["throttled"] >= AT_ONCE - most
    assert highest(process) - before < 2 * HASH_BYTES + 64 * 1024 * 1024


def test_passwords_are_hashed_a_few_at_a_time_and_who_gets_no_turn_has_not_failed(
    cast: dict[str, User], console: ConsoleSettings, settings: Any
) -> None:
    settings.CONSOLE = replace(console, login_wait_s=0.01)
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast["viewer"])
    newcomer, form = Client(enforce_csrf_checks=True), {"username": "viewer", "password": PASSWORD}
    newcomer.get("/login")
    with ExitStack() as turns:
        for _ in range(hashing.AT_ONCE):
            turns.enter_context(hashing.turn())
        refused = submit(newcomer, "/login", form)
        assert (refused.status_code, refused["Retry-After"]) == (503, "5")
        assert client.get("/healthz").status_code == client.get("/settings").status_code == 200
    assert not LoginFailure.objects.exists()
    assert submit(newcomer, "/login", form).status_code == 302


def test_one_address_takes_no_more_places_than_are_still_free() -> None:
    places = hashing.Places(8)
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(places.place("198.51.100.1"))
        with pytest.raises(Unavailable):
            held.enter_context(places.place("198.51.100.1"))
        for _ in range(2):
            held.enter_context(places.place("198.51.100.2"))
        with pytest.raises(Unavailable):
            held.enter_context(places.place("198.51.100.2"))
        held.enter_context(places.place("198.51.100.3"))
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(places.place("198.51.100.2"))


@pytest.mark.usefixtures("long_waits")
@pytest.mark.django_db(transaction=True)
def test_attempts_that_wait_count_already_and_what_is_not_judged_does_not(console: ConsoleSettings) -> None:
    judged, go = threading.Semaphore(0), threading.Event()

    def wrong() -> bool:
        judged.release()
        assert go.wait(60)
        return False

    def attempt() -> bool:
        try:
            return throttle.judge("viewer", "192.0.2.1", wrong)
        finally:
            database.close()  # of this thread

    with ThreadPoolExecutor(console.login_per_account) as pool:
        waiting = [pool.submit(attempt) for _ in range(console.login_per_account)]
        for _ in waiting:
            assert judged.acquire(timeout=60)
        with pytest.raises(LimitExceeded):
            throttle.judge("viewer", "192.0.2.1", lambda: True)
        assert throttle.judge("viewer", "192.0.2.2", lambda: True)
        go.set()
        assert not any(each.result() for each in waiting)
    assert LoginFailure.objects.count() == console.login_per_account
