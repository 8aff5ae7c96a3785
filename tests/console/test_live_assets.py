"""What the browser loads: light, ours alone, nothing inline, nothing from elsewhere, colours that can be read."""

import colorsys
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CONSOLE = Path(__file__).resolve().parents[2] / "console"
TEMPLATES = sorted((CONSOLE / "templates").rglob("*.html"))
SCRIPTS = sorted((CONSOLE / "static" / "js").glob("*.js"))
STYLES = (CONSOLE / "static" / "css" / "signalbox.css").read_text()
ICONS = (CONSOLE / "static" / "img" / "icons.svg").read_text()
PAIR = re.compile(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")


def packed(paths: list[Path]) -> int:
    """Bytes over the wire, compressed one by one."""
    return sum(len(gzip.compress(path.read_bytes())) for path in paths)


def test_all_scripts_together_are_at_most_60_kb() -> None:
    assert packed(SCRIPTS) <= 60_000


def test_the_stylesheet_is_at_most_20_kb() -> None:
    assert packed([CONSOLE / "static" / "css" / "signalbox.css"]) <= 20_000


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda p: p.name)
def test_a_template_has_no_inline_script_style_or_handler(template: Path) -> None:
    text = template.read_text()
    html = re.sub(r"\{%.*?%\}", "", text)  # "with one=…" is a word of Django's
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", html)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda p: p.name)
def test_a_template_loads_nothing_from_elsewhere(template: Path) -> None:
    assert not re.search(r"<(?:script|link|img|use)[^>]+(?:src|href)=[\"']?(?:https?:)?//", template.read_text())


def test_every_icon_that_is_asked_for_is_drawn() -> None:
    drawn = set(re.findall(r'<symbol id="([a-z]+)"', ICONS))
    ways = (r"icons\.svg' %}#([a-z]+)", r'icon="([a-z]+)"', r'icon\.html" with name="([a-z]+)"', r'\bicon\("([a-z]+)"')
    text = "".join(path.read_text() for path in [*TEMPLATES, *SCRIPTS])
    asked = {name for way in ways for name in re.findall(way, text)}
    assert {"live", "release", "gpu", "freeze"} <= asked <= drawn


def test_every_figure_that_the_feed_tells_has_a_place_on_the_board() -> None:
    feed = "".join(path.read_text() for path in (CONSOLE / "feed").glob("*.py"))
    told = set(re.findall(r'view\.health\("([a-z]+)"', feed))
    board = (CONSOLE / "static" / "js" / "board.js").read_text()
    (function,) = re.findall(r"^const HEALTH = .*?^}", board, re.MULTILINE | re.DOTALL)
    assert {"nats", "workers", "scaling"} <= told
    assert told <= set(re.findall(r"\b([a-z]+): ", function))


def test_every_part_of_the_throughput_has_a_colour_of_its_own() -> None:
    asked = {name for path in [*TEMPLATES, *SCRIPTS] for name in re.findall(r"\bshare-\d", path.read_text())}
    drawn = dict(re.findall(r"\.(share-\d) \{ fill: (var\(--[a-z-]+\)); background: \2; \}", STYLES))
    assert len(asked) == 4
    assert asked == set(drawn)
    assert len(set(drawn.values())) == len(asked)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["bad-ink", "bad-mark"])
def test_what_failed_is_red_and_not_amber(theme: int, name: str) -> None:
    colours = {found: (light, dark)[theme] for found, light, dark in PAIR.findall(STYLES)}
    red, green, blue = (int(colours[name][i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, _, saturation = colorsys.rgb_to_hls(red, green, blue)
    assert min(hue, 1 - hue) * 360 < 10
    assert saturation > 0.5


def luminance(colour: str) -> float:
    """WCAG 2.2 relative luminance of ``#rrggbb``."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """WCAG 2.2 contrast ratio."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def pairs() -> Iterator[tuple[str, str, float]]:
    """Foreground, ground and the ratio they need: 4.5 for text, 3 for marks and borders of controls."""
    kinds = ("good", "busy", "wait", "bad", "still", "off")
    for ground in ("page", "surface", "raised"):
        yield from ((ink, ground, 4.5) for ink in ("ink", "ink-2", "muted", "accent"))
        yield "line-strong", ground, 3.0
    yield "accent-ink", "accent", 4.5
    for kind in kinds:
        yield f"{kind}-ink", f"{kind}-soft", 4.5
        yield f"{kind}-ink", "surface", 4.5
        yield f"{kind}-mark", f"{kind}-soft", 3.0
        yield f"{kind}-mark", "surface", 3.0


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "ground", "wanted"), list(pairs()))
def test_colours_can_be_told_apart(theme: int, front: str, ground: str, wanted: float) -> None:
    colours = {name: (light, dark)[theme] for name, light, dark in PAIR.findall(STYLES)}
    assert contrast(colours[front], colours[ground]) >= wanted
