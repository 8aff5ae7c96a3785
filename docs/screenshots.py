"""Takes docs/board-light.png and docs/board-dark.png of a stack that runs the demo. Run: ``make screenshots``."""

# ruff: noqa: INP001  a script beside the pictures it takes, not a package

import contextlib
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Page, expect

from tests.e2e.browser import House, open_window
from tests.e2e.upprocess import EDGE, Up

FOLDER: Final = Path(__file__).resolve().parent
WIDTH, HEIGHT = 1440, 1220
FEED_S: Final = 60
"""Long enough for the strips of the lanes and the curves to show something."""
MAX_BYTES: Final = 300_000


def main() -> None:
    """Start a stack on ports of its own, feed it, take both pictures, stop it."""
    with tempfile.TemporaryDirectory(prefix="signalbox-board-") as folder:
        up = Up(Path(folder) / "data", *EDGE)
        try:
            up.wait_until_up()
            with _fed(up.data):
                _take(House(up.data))
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
        for theme in ("light", "dark"):
            page = window.tab(theme=theme, width=WIDTH, height=HEIGHT)
            page.goto(window.url("/"))
            _wait_until_filled(page)
            path = FOLDER / f"board-{theme}.png"
            page.screenshot(path=path, animations="disabled")
            if path.stat().st_size > MAX_BYTES:
                raise SystemExit(f"{path.name} has {path.stat().st_size} bytes; the most is {MAX_BYTES}")


def _wait_until_filled(page: Page) -> None:
    """Every part of the board shows something, and the device is in use."""
    expect(page.locator("#link")).to_have_attribute("data-link", "live")
    expect(page.locator("#health > *")).to_have_count(7)
    for part in ("#queues tr", "#ticker li", "#workers tr"):
        expect(page.locator(part).first).to_be_attached()
    expect(page.locator(".lane:is([data-state=computing], [data-state=partly])").first).to_be_attached()


if __name__ == "__main__":
    main()
