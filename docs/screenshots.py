"""Takes the README's two pictures of the board, and every screen in both themes (docs/screens, docs/screens.md).

Of a stack that runs the demo meanwhile. Run: ``make screenshots``; ``python docs/screenshots.py queue trial`` takes the
pictures of these screens alone.
"""

# ruff: noqa: INP001  a script beside the pictures it takes, not a package

import ast
import base64
import contextlib
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Page, expect

from signalbox.client import Client
from tests.e2e.browser import House, Window, open_window
from tests.e2e.upprocess import EDGE, Up

FOLDER: Final = Path(__file__).resolve().parent
WIDTH, HEIGHT = 1440, 1220
FEED_S: Final = 60
"""Long enough for the strips of the lanes and the curves to show something."""
MAX_BYTES: Final = 300_000
"""Of a picture of the board."""
SCREENS: Final = FOLDER / "screens"
SCREEN_WIDTH, SCREEN_HEIGHT = 1280, 860
MAX_SCREEN_BYTES: Final = 60_000
QUALITIES: Final = (80, 60, 40, 25)
"""Of WebP, the best one that is small enough is taken."""
THEMES: Final = ("light", "dark")
QUEUE: Final = "thumbnails"
MAX_DELIVERY: Final = 2
HEAD: Final = """# Screens

Every screen of the [console](console.md), of a stack that runs the demo, in the theme that this page is read in.
`make screenshots` makes the pictures and this page.
"""


def main(names: Sequence[str]) -> None:
    """Start a stack on ports of its own, feed it, take the pictures, stop it. names: screens; none = all, and the
    board."""
    with tempfile.TemporaryDirectory(prefix="signalbox-board-") as folder:
        up = Up(Path(folder) / "data", *EDGE)
        try:
            up.wait_until_up()
            with _fed(up.data):
                if not names:
                    _take(House(up.data))
                _take_screens(House(up.data), names)
        finally:
            up.process.terminate()
            up.process.wait(60)


@contextlib.contextmanager
def _fed(data: Path) -> Iterator[None]:
    """While the demo runs, after it has run for a while: digits, and a slow job now and then."""
    argv = [sys.executable, "-u", "-m", "signalbox", "demo", "--data", str(data), "--slow", "2"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as demo:
        try:
            assert demo.stdout is not None
            for _ in itertools.islice(demo.stdout, FEED_S):  # it prints a line a second
                pass
            yield
        finally:
            demo.terminate()
            demo.communicate()


def _take(house: House) -> None:
    with open_window(house) as window:
        for theme in THEMES:
            page = window.tab(theme=theme, width=WIDTH, height=HEIGHT)
            page.goto(window.url("/"))
            _wait_until_filled(page)
            path = FOLDER / f"board-{theme}.png"
            page.screenshot(path=path, animations="disabled")
            if path.stat().st_size > MAX_BYTES:
                raise SystemExit(f"{path.name} has {path.stat().st_size} bytes; the most is {MAX_BYTES}")


def _take_screens(house: House, names: Sequence[str]) -> None:
    """One picture of each screen and theme, and the page that shows them."""
    if not names:
        shutil.rmtree(SCREENS, ignore_errors=True)
        SCREENS.mkdir()
    taken: list[str] = []
    with open_window(house) as window, _watched_queue(window) as queue:
        for theme in THEMES:
            page = window.tab(theme=theme, width=SCREEN_WIDTH, height=SCREEN_HEIGHT)
            things = _things(window, page) | {"queue": queue}
            guest = window.guest(theme=theme, width=SCREEN_WIDTH)
            for name, path in _screens(things):
                file = name.replace(":", "-")
                picture = SCREENS / f"{file}-{theme}.webp"
                if not names or name in names:
                    shown = guest if name == "login" else page
                    shown.goto(window.url(path))
                    if name != "confirm-password":
                        window.confirm_if_asked(shown)
                    if name == "live:board":
                        _wait_until_filled(shown)
                    elif shown.locator("#link").count():
                        expect(shown.locator("#link")).to_have_attribute("data-link", "live")
                    _write(shown, picture)
                taken += [file] if theme == THEMES[0] and picture.exists() else []
            guest.context.close()
            page.context.close()
    pictures = (
        f"\n## {file.replace('-', ' ').capitalize()}\n\n<picture>\n"
        f'  <source media="(prefers-color-scheme: dark)" srcset="screens/{file}-dark.webp">\n'
        f'  <img alt="The screen {file}" src="screens/{file}-light.webp">\n</picture>\n'
        for file in taken
    )
    (FOLDER / "screens.md").write_text(HEAD + "".join(pictures))
    total = sum(path.stat().st_size for path in SCREENS.iterdir())
    sys.stdout.write(f"{len(taken)} screens in {len(THEMES)} themes, {total / 1e6:.1f} MB\n")


def _screens(things: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Name and path of each screen that the tests visit: of the table there, read without Django."""
    tree = ast.parse((FOLDER.parent / "tests" / "e2e" / "test_browser_console.py").read_text())
    (table,) = (
        node.value for node in tree.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "SCREENS"
    )
    assert table is not None
    for name, paths in ast.literal_eval(table).items():
        if paths:
            try:
                yield name, paths[0].format(**things)
            except KeyError as missing:
                sys.stdout.write(f"{name}: the demo has no {missing} to show\n")


def _things(window: Window, page: Page) -> dict[str, str]:
    """Something of each kind that the demo has, as the console's API names it."""

    def first(path: str, *keys: str) -> str:
        found = page.request.get(window.url(f"/api/{path}")).json()
        for key in keys[:-1]:
            found = found[key]
        return str(found[0][keys[-1]])

    model = first("models?q=digits", "models", "name")
    return {
        "model": model,
        "trial": _trial(window, page, model),
        "job": first("jobs?size=1", "jobs", "id"),
        "key": page.request.get(window.url("/api/keys")).json()[-1]["id"],  # the demo's; later ones are of trials
        "worker": first("workers", "id"),
        "gpu": first("workers", "device"),
        "host": first("hosts", "id"),
    }


def _trial(window: Window, page: Page, model: str) -> str:
    """The id of a call of a model that the console has made, as its page asks for it first."""
    page.goto(window.url(f"/models/{model}/try"))
    window.confirm_if_asked(page)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_label("Answer of the front")).to_contain_text("outputs")
    return page.url.rpartition("/")[2]


@contextlib.contextmanager
def _watched_queue(window: Window) -> Iterator[str]:
    """The name of a queue with items on both sides, consumers that hold some, and an item that is dead."""
    page = window.tab()
    page.goto(window.url("/queues/-/create"))
    window.confirm_if_asked(page)
    page.get_by_label(re.compile("^Name")).fill(QUEUE)
    for side in ("Source", "Sink"):
        page.get_by_label(re.compile(f"^{side}: most items")).fill("40")
    page.locator("[name=max_delivery]").fill(str(MAX_DELIVERY))
    page.get_by_role("button", name="Create queue").click()
    page.wait_for_url(window.url(f"/queues/{QUEUE}"))
    expect(page.locator("[data-live=state]")).to_contain_text("running")
    facts = window.house.facts
    with Client(facts["front"], facts["api_key"]) as client, contextlib.ExitStack() as open_watches:
        queue = client.queue(QUEUE)
        queue.put(b"no picture")
        with contextlib.closing(queue.watch()) as items:
            for item in itertools.islice(items, MAX_DELIVERY):
                queue.nack(item, reason="no picture")
        for number in range(1, 13):
            queue.put(f"picture {number}".encode())
        for uid in ("resize-1", "resize-2"):
            items = client.queue(QUEUE, uid=uid).watch(window=4)
            held = next(open_watches.enter_context(contextlib.closing(items)))
            queue.sink.put(b"a thumbnail", tags={"requestId": held.request_id})
        for words in ("1 dead item", "resize-1", "resize-2"):
            expect(page.locator("[data-live=source]")).to_contain_text(words)  # told every few seconds
        page.context.close()
        yield QUEUE


def _write(page: Page, path: Path) -> None:
    """The window as WebP, which Playwright cannot write and the browser can."""
    page.wait_for_load_state("load")
    browser = page.context.new_cdp_session(page)
    for quality in QUALITIES:
        taken = browser.send("Page.captureScreenshot", {"format": "webp", "quality": quality})
        path.write_bytes(base64.b64decode(taken["data"]))
        if path.stat().st_size <= MAX_SCREEN_BYTES:
            return
    raise SystemExit(f"{path.name} has {path.stat().st_size} bytes; the most is {MAX_SCREEN_BYTES}")


def _wait_until_filled(page: Page) -> None:
    """Every part of the board shows something, and the device is in use."""
    expect(page.locator("#link")).to_have_attribute("data-link", "live")
    expect(page.locator("#health > *")).to_have_count(7)
    for part in ("#queues tr", "#ticker li", "#workers tr"):
        expect(page.locator(part).first).to_be_attached()
    expect(page.locator(".lane:is([data-state=computing], [data-state=partly])").first).to_be_attached()


if __name__ == "__main__":
    main(sys.argv[1:])
