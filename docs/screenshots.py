"""Takes the README's two pictures of the board, and every screen in both themes (docs/screens, docs/screens.md).

Of a stack that runs the demo meanwhile. Run: ``make screenshots``.
"""

# ruff: noqa: INP001  a script beside the pictures it takes, not a package

import ast
import base64
import contextlib
import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Page, expect

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
HEAD: Final = """# Screens

Every screen of the [console](console.md), of a stack that runs the demo, in the theme that this page is read in.
`make screenshots` makes the pictures and this page.
"""


def main() -> None:
    """Start a stack on ports of its own, feed it, take both pictures, stop it."""
    with tempfile.TemporaryDirectory(prefix="signalbox-board-") as folder:
        up = Up(Path(folder) / "data", *EDGE)
        try:
            up.wait_until_up()
            with _fed(up.data):
                _take(House(up.data))
                _take_screens(House(up.data))
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


def _take_screens(house: House) -> None:
    """One picture of each screen and theme, and the page that shows them."""
    shutil.rmtree(SCREENS, ignore_errors=True)
    SCREENS.mkdir()
    taken: list[str] = []
    with open_window(house) as window:
        for theme in THEMES:
            page = window.tab(theme=theme, width=SCREEN_WIDTH, height=SCREEN_HEIGHT)
            things = _things(window, page)
            guest = window.guest(theme=theme, width=SCREEN_WIDTH)
            for name, path in _screens(things):
                shown = guest if name == "login" else page
                shown.goto(window.url(path))
                if name != "confirm-password":
                    window.confirm_if_asked(shown)
                if name == "live:board":
                    _wait_until_filled(shown)
                file = name.replace(":", "-")
                _write(shown, SCREENS / f"{file}-{theme}.webp")
                taken += [file] if theme == THEMES[0] else []
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

    return {
        "model": first("models?q=digits", "models", "name"),
        "job": first("jobs?size=1", "jobs", "id"),
        "key": first("keys", "id"),
        "worker": first("workers", "id"),
        "gpu": first("workers", "device"),
        "host": first("hosts", "id"),
    }


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
    main()
