"""The whole stack, as ``signalbox up`` starts it or one that runs already, and a browser in front of its console."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Response,
    WebError,
    expect,
    sync_playwright,
)

from tests.rigs import lightup
from tests.rigs.runningstack import RunningStack

ROOT: Final = Path(__file__).resolve().parents[2]
CHROMIUM: Final = Path("/usr/bin/chromium")
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
START_S: Final = 120.0
SLOW_MS: Final = 60_000


class House:
    """A running stack, by the folder that holds its ``up.json``."""

    def __init__(self, data: Path) -> None:
        self.data = data

    @property
    def facts(self) -> dict[str, Any]:
        """``up.json`` as it is now."""
        found: dict[str, Any] = json.loads((self.data / "up.json").read_text())
        return found

    @property
    def is_production(self) -> bool:
        """Whether it is what docker-compose.yml declares, and lives on."""
        return "namespaces" in self.facts

    def kill(self, name: str) -> None:
        """SIGKILL to one of its processes; ``nats`` is every node of it."""
        found: dict[str, int] = self.facts["processes"]
        for each, pid in found.items():
            if each == name or (name == "nats" and each.startswith("nats-")):
                os.kill(pid, signal.SIGKILL)

    def shown(self, version: Path, name: str) -> str:
        """The folder of a model as console and workers see it. version: of the test's own, in its folder."""
        if not self.is_production:
            return str(version.parent)
        here, inside = RunningStack(self.data / "up.json").models()
        shutil.copytree(version, here / name / version.name)
        owner = here.stat()
        for path in (here / name, *(here / name).rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)
        return str(inside / name)

    def call(self, path: str, key: str, body: object | None = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON answer of the front."""
        request = urllib.request.Request(  # noqa: S310  our own server
            self.facts["front"] + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"{}")


class NewHouse(House):
    """A stack that ``signalbox up`` starts without the demonstration models; what computes in it is a toy."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        argv = [
            sys.executable,
            "-m",
            lightup.PROGRAM,
            "up",
            "--no-demo",
            "--ports",
            "any",
            "--front",
            "edge",
            "--models",
            tempfile.gettempdir(),  # where the tests' models are kept
        ]
        self._process = subprocess.Popen(
            [*argv, "--data", str(data)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            bufsize=0,
        )

    def __enter__(self) -> Self:
        try:
            self._wait_for("Ctrl-C stops everything")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate(timeout=10)
            raise

    def _wait_for(self, words: str) -> None:
        """Reads the raw pipe: a buffered reader would hide lines from ``select``."""
        assert self._process.stdout is not None
        deadline, printed = time.monotonic() + START_S, ""
        while words not in printed:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._process.stdout.fileno(), 65_536) if ready else b""
            assert piece, f"the stack did not start:\n{printed}"
            printed += piece.decode(errors="replace")


class Window:
    """A browser that remembers every violation, error and foreign request of all its pages."""

    def __init__(self, browser: Browser, house: House) -> None:
        self.browser = browser
        self.house = house
        self.faults: list[str] = []
        self._login: Any = None

    def tab(self, *, theme: str = "light", width: int = 1440, height: int = 900) -> Page:
        """A tab logged in as admin."""
        context = self._context(theme, width, height)
        page = context.new_page()
        if self._login is None:
            self.log_in(page)
            self._login = context.storage_state()
        return page

    def guest(self, *, theme: str = "light", width: int = 1440) -> Page:
        """A tab of somebody not logged in."""
        return self._context(theme, width, 900, is_guest=True).new_page()

    def log_in(self, page: Page) -> None:
        """By the form, as a person does."""
        login = self.house.facts["login"]
        page.goto(self.url("/login"))
        page.get_by_label("Username").fill(login["user"])
        page.get_by_label("Password").fill(login["password"])
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(self.url("/"))

    def confirm_if_asked(self, page: Page) -> None:
        """Enter the password again where the page asks for it: the login was more than five minutes ago."""
        if "/confirm?" in page.url:
            page.get_by_label("Password").fill(self.house.facts["login"]["password"])
            page.get_by_role("button", name="Go on").click()

    def url(self, path: str) -> str:
        """Address of a page of the console."""
        return str(self.house.facts["console"]) + path

    def _context(self, theme: str, width: int, height: int, *, is_guest: bool = False) -> BrowserContext:
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            storage_state=None if is_guest else self._login,
        )
        context.set_default_timeout(SLOW_MS)
        context.add_init_script(
            "document.addEventListener('securitypolicyviolation', (e) => "
            "console.error('CSP violation', e.violatedDirective, e.blockedURI));"
        )
        context.on("request", self._note_request)
        context.on("console", self._note_message)
        context.on("weberror", self._note_error)
        context.on("requestfailed", lambda r: print(f"no answer: {r.url}: {r.failure}"))
        context.on("response", _print_refusal)
        return context

    def _note_request(self, request: Request) -> None:
        base = self.house.facts["console"]
        if not request.url.startswith((base, base.replace("http", "ws", 1), "data:", "blob:")):
            self.faults.append(f"foreign request: {request.url}")

    def _note_error(self, error: WebError) -> None:
        self.faults.append(f"script: {error.error}")
        print(self.faults[-1])

    def _note_message(self, message: ConsoleMessage) -> None:
        if "CSP violation" in message.text or "Content Security Policy" in message.text:
            self.faults.append(message.text)
        elif message.type == "error":
            print(f"the page's console: {message.text}")


def _print_refusal(response: Response) -> None:
    """For who reads why a test failed: a page that lacks a script does nothing, and does not say so."""
    if response.status >= 400:
        print(f"{response.status}: {response.url}")


@contextlib.contextmanager
def open_window(house: House) -> Iterator[Window]:
    """Headless Chromium in front of the house's console."""
    expect.set_options(timeout=SLOW_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield Window(browser, house)
        finally:
            browser.close()
