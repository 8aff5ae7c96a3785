"""Getting in, in a real browser: by a provider, and by a password with a second factor."""

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyotp
import pytest
from playwright.sync_api import Page, expect

from signalbox.ops.ports import free_port
from tests.console.test_serve import PASSWORD, _wait_for
from tests.e2e.browser import CHROMIUM, House, Window, open_window
from tests.e2e.pagefaults import audit

with warnings.catch_warnings(record=True):  # it uses names of Authlib that are to go
    from oidc_provider_mock import run_server_in_thread

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs chromium"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:authlib"),
]


class Served(House):
    """A console alone, without NATS."""

    def __init__(self, data: Path, port: int, issuer: str) -> None:
        super().__init__(data)
        self.issuer = issuer
        self._facts = {"console": f"http://127.0.0.1:{port}", "login": {"user": "admin", "password": PASSWORD}}

    @property
    def facts(self) -> dict[str, Any]:
        return self._facts


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with run_server_in_thread() as provider:
        issuer, port = f"http://localhost:{provider.server_port}", free_port()
        httpx.put(f"{issuer}/users/1", json={"preferred_username": "anna", "groups": ["sre"]}).raise_for_status()
        data = tmp_path_factory.mktemp("served")
        env = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")} | {
            "SIGNALBOX_NATS_URL": "nats://127.0.0.1:1",
            "SIGNALBOX_KEY_PEPPER": "pepper",
            "SIGNALBOX_CONSOLE_DATA_DIR": str(data),
            "SIGNALBOX_CONSOLE_LISTEN": f"127.0.0.1:{port}",
            "SIGNALBOX_CONSOLE_ADMIN_PASSWORD": PASSWORD,
            "SIGNALBOX_CONSOLE_OIDC_ISSUER": issuer,
            "SIGNALBOX_CONSOLE_OIDC_CLIENT_ID": "signalbox",
            "SIGNALBOX_CONSOLE_OIDC_CLIENT_SECRET": "secret",  # this provider knows no public clients
            "SIGNALBOX_CONSOLE_OIDC_ROLES": "sre=operator",
        }
        program = [sys.executable, "-m", "console"]
        subprocess.run([*program, "bootstrap"], env=env, check=True, capture_output=True, timeout=120)
        process = subprocess.Popen([*program, "serve"], env=env, stderr=subprocess.DEVNULL)
        try:
            _wait_for(port, process)
            yield Served(data, port, issuer)
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def window(served: Served) -> Iterator[Window]:
    with open_window(served) as window:
        yield window


def _at_the_provider(page: Page) -> None:
    page.locator("input[name=sub]").fill("1")
    page.get_by_role("button", name=re.compile("Authorize")).first.click()


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 390)])
def test_by_a_provider_and_once_more_for_what_asks_who_one_is(
    window: Window, served: Served, theme: str, width: int
) -> None:
    page = window.guest(theme=theme, width=width)
    page.goto(window.url("/login?next=/settings"))
    assert audit(page, page.url) == []
    page.get_by_role("link", name="Sign on with your organisation").click()
    _at_the_provider(page)
    page.wait_for_url(window.url("/settings"))
    expect(page.get_by_text("have no password here")).to_be_visible()
    page.goto(window.url("/login/sign-on?again=1&next=/models"))
    _at_the_provider(page)
    page.wait_for_url(window.url("/models"))
    page.context.close()
    assert [fault for fault in window.faults if served.issuer not in fault and "cdn" not in fault.lower()] == []


@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 1440)])
def test_by_a_password_and_a_second_factor_that_is_added_used_and_removed(
    window: Window, theme: str, width: int
) -> None:
    page = window.guest(theme=theme, width=width)
    window.log_in(page)
    page.goto(window.url("/settings"))
    page.get_by_role("link", name="Add second factor").click()
    assert audit(page, page.url) == []
    secret = page.locator("p code").first.inner_text().replace(" ", "")
    page.get_by_label("Code that the app shows").fill(pyotp.TOTP(secret).now())
    page.get_by_role("button", name="Add second factor").click()
    recovery = page.locator("#recovery-codes").inner_text().split()
    assert audit(page, page.url) == []
    page.get_by_role("link", name="I have kept them").click()
    other = window.guest(theme=theme, width=width)
    other.goto(window.url("/login"))
    other.get_by_label("Username").fill("admin")
    other.get_by_label("Password").fill(PASSWORD)
    other.get_by_role("button", name="Log in").click()
    other.wait_for_url(window.url("/login/code"))
    assert audit(other, other.url) == []
    other.get_by_label("Code").fill(recovery[0])
    other.get_by_role("button", name="Log in").click()
    other.wait_for_url(window.url("/"))
    other.goto(window.url("/settings"))
    other.get_by_role("button", name="Remove second factor").click()
    other.get_by_role("dialog").get_by_role("button", name="Remove second factor").click()
    expect(other.get_by_role("link", name="Add second factor")).to_be_visible()
    for tab in (page, other):
        tab.context.close()
