"""Takes the picture of docs/fleet.md: a quarter of an hour of a fleet that scales, as the console's page draws it.

Of the rules as they are in virtual time, as tests/console/test_scaling_fleet.py has them. Run: ``make screenshots``.
"""

# ruff: noqa: INP001  a script beside the picture it takes, not a package

import base64
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import django
from django.template.loader import render_to_string
from playwright.sync_api import sync_playwright

from signalbox.wire.scaling import Scaling
from tests.e2e.browser import CHROMIUM, FLAGS

ROOT: Final = Path(__file__).resolve().parents[1]
SETTINGS: Final = Scaling(is_on=True, min=0, max=4, backlog=10.0, down_window_s=60.0, zero_grace_s=60.0)
WIDTH, HEIGHT = 900, 300
QUALITY: Final = 80
THEMES: Final = ("light", "dark")
PAGE: Final = '<!doctype html><html lang="en" data-theme="system"><style>{style}</style><body><div id="it">{card}</div>'


def main() -> None:
    """Let the fleet run, draw it in both themes."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    django.setup()
    style = (ROOT / "console" / "static" / "css" / "signalbox.css").read_text()
    page = PAGE.format(style=style, card=render_to_string("workers/picture.html", {"picture": _picture()}))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for theme in THEMES:
            tab = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="dark" if theme == "dark" else "light"
            )
            tab.set_content(page)
            box = tab.locator("#it").bounding_box()
            assert box is not None
            clip = {**box, "scale": 1}
            asked = {"format": "webp", "quality": QUALITY, "clip": clip}
            taken = tab.context.new_cdp_session(tab).send("Page.captureScreenshot", asked)
            (ROOT / "docs" / f"scaling-{theme}.webp").write_bytes(base64.b64decode(taken["data"]))
        browser.close()


def _picture() -> object:
    """A quarter of an hour: a burst of 200 jobs, a rest until nothing is kept, and a load that grows and fades."""
    from console.feed.scaling import KEPT, STEP_S, Sample
    from console.fleet.capacity import picture
    from tests.console.test_scaling_fleet import Agent, Fleet

    fleet = Fleet([Agent("h0", 2), Agent("h1", 2)], SETTINGS)
    due = list(_arrivals())
    history: list[Sample] = []
    for step in range(KEPT):
        since = step * STEP_S
        history.append(Sample(fleet.now, fleet.wanted.now, fleet.actual.now))
        fleet.run(STEP_S, [at - since for at in due if since <= at < since + STEP_S])
    return picture(history)


def _arrivals() -> Iterator[float]:
    """Seconds from the beginning."""
    yield from (60.0 + number * 0.05 for number in range(200))
    at = 400.0
    while at < 700.0:
        yield at
        at += 1.0 / (1.0 + 8.0 * max(0.0, 1.0 - abs(at - 550.0) / 150.0))


if __name__ == "__main__":
    main()
