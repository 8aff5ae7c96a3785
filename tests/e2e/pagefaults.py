"""What is wrong with a page of the console in a browser: what moves, what is covered or cut off, what axe finds."""

from collections.abc import Iterable, Iterator
from typing import Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

WATCH: Final = """() => {
  window.needless = [];
  new MutationObserver((records) => {
    for (const record of records) {
      const now = record.type === "attributes" ? record.target.getAttribute(record.attributeName) : record.target.data;
      const made = record.addedNodes.length && record.target.closest(".lane, #queues, #workers");
      if (record.type === "childList" ? made : record.oldValue === now)
        window.needless.push(`${record.type} ${record.attributeName} of ${record.target.nodeName}: ${record.oldValue}`);
    }
  }).observe(document, {
    subtree: true, childList: true, attributes: true, characterData: true,
    attributeOldValue: true, characterDataOldValue: true,
  });
}"""
"""Notes on an idle board: elements that are made anew, and what is set to the value that it had."""


SHIFTS: Final = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    // A step of a job that comes later moves the list of steps, within its own frame: that is what it is for.
    const moved = entry.sources.filter((one) => !document.getElementById("ticker")?.contains(one.node));
    const names = moved.map((one) => `${one.node?.nodeName} ${one.node?.className}`);
    if (moved.length) window.shifts.push([entry.value, names]);
  }
}).observe({ type: "layout-shift", buffered: true });
"""


COVERED: Final = """() => {
  const covered = () => {
    const one = document.activeElement;
    if (!one || one === document.body) return null;
    if (one.closest(".rail, .bar, .skip")) return "";
    const top = document.querySelector(".bar").getBoundingClientRect().bottom;
    const bottom = document.querySelector(".rail").getBoundingClientRect().top;
    const box = one.getBoundingClientRect();
    const seen = Math.min(box.bottom, bottom) - Math.max(box.top, top);
    if (seen >= Math.min(box.height - 1, bottom - top - 32)) return "";  // beside a bar stays a gap
    return `${one.nodeName}#${one.id} at ${box.top} to ${box.bottom}, the bars end at ${top} and begin at ${bottom}`;
  };
  window.covered = [];
  addEventListener("keydown", (event) => { if (event.key === "Tab") window.covered.push(covered()); });
  window.focusAll = () => {
    const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")];
    return [...all, ...all.reverse()].flatMap((one) => {
      one.focus();
      return document.activeElement === one ? [covered()] : [];
    });
  };
}"""
"""What a bar covers of the element that has the focus, noted at each key: empty if nothing, null where none has it."""


AT_ONCE: Final = 10
"""Keys pressed between two looks at the notes: asking the page after each costs more than the key."""


def focus_all(page: Page) -> Iterator[str]:
    """What is covered of each element that can have the focus, downwards and upwards."""
    seen = page.evaluate("focusAll()")
    assert len(seen) > 10
    yield from filter(None, seen)


def walk_focus(page: Page) -> Iterator[str]:
    """What is covered while a key leads once through the page, from where nothing has the focus to there again."""
    for key in ("Tab", "Shift+Tab"):
        began = len(page.evaluate("covered"))
        seen: list[str | None] = []
        while seen.count(None) < 2:
            assert len(seen) < 1_000, "the focus does not come to an end"
            for _ in range(AT_ONCE):
                page.keyboard.press(key)
            seen = page.evaluate("covered")[began:]
        yield from (f"{key} to {each}" for each in seen if each)


SPILLS: Final = """
[...document.querySelectorAll(".card")].flatMap((card) => {
  const edge = card.getBoundingClientRect().right + 1;
  return [...card.children].filter((part) => part.getBoundingClientRect().right > edge).map((part) => part.className);
})
"""
"""What of a card lies outside it: cut off, where the page itself does not grow wider."""


SIDEWAYS: Final = """
innerWidth > 640 ? [] : [...document.querySelectorAll("main .table-wrap")].flatMap((table) =>
  table.scrollWidth > table.clientWidth + 1 ? [table.getAttribute("aria-label") ?? table.className] : [])
"""
"""Tables of a narrow screen that are read only by scrolling sideways."""


MOST_SHIFT: Final = 0.01
"""Layout shift of a page while it loads (web.dev, Cumulative Layout Shift: up to 0.1 is good)."""
_PAINTED: Final = "new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r(window.shifts))))"
"""Once the browser has painted the page as it is: on a busy machine a new size comes with a later frame."""


BESIDE: Final = """
[...document.querySelectorAll(".page-head > p")].some((lead) =>
  lead.getBoundingClientRect().top < lead.parentElement.querySelector("h1").getBoundingClientRect().bottom)
"""
"""Whether a page's description stands beside its heading instead of below it."""


RULES: Final = {
    "rules": {"label-content-name-mismatch": {"enabled": True}, "target-size": {"enabled": True}},
    "resultTypes": ["violations"],
}
"""Beside axe's own: what is read aloud holds the words that are seen, and a finger finds 24 px of each target."""


def resize(page: Page, width: int) -> None:
    """Give the window a size, and wait until it has it: else the next page is laid out twice, and moves."""
    page.set_viewport_size({"width": width, "height": 740 if width < 500 else 900})
    page.evaluate(_PAINTED)


def moved(page: Page, screen: str) -> list[str]:
    """What moved while a page loaded that notes :data:`SHIFTS`."""
    shifts = page.evaluate(_PAINTED)
    return [f"{screen}: moves: {shifts}"] if sum(value for value, _ in shifts) > MOST_SHIFT else []


def judged(page: Page, screen: str, looks: Iterable[tuple[int, str]]) -> list[str]:
    """What is wrong with a page that is open, at these widths and in these themes."""
    found = []
    for width, theme in looks:
        resize(page, width)
        # A colour on its way to another one would be judged.
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce")
        found += audit(page, f"{screen} at {width} {theme}")
    return found


def audit(page: Page, screen: str) -> list[str]:
    """What is wrong with a page: does it fit and, by axe, is it accessible."""
    page.evaluate("document.querySelectorAll('details:not(.menu)').forEach((d) => { d.open = true; })")
    found = [
        f"{screen}: {v['id']} ({v['impact']}): {v['nodes'][0]['html'][:160]}"
        for v in Axe().run(page, options=RULES).response["violations"]
        if v["impact"] in {"serious", "critical"}
    ]
    wide, seen = page.evaluate("[document.scrollingElement.scrollWidth, window.innerWidth]")
    if wide > seen:
        found.append(f"{screen}: {wide} px wide in a window of {seen}")
    found += [f"{screen}: {name} is wider than its card" for name in page.evaluate(SPILLS)]
    found += [f"{screen}: {name} scrolls sideways" for name in page.evaluate(SIDEWAYS)]
    found += [f"{screen}: its description is beside its heading"] if page.evaluate(BESIDE) else []
    return found
