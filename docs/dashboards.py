"""Draws each dashboard of deploy/observe as a loaded stack fills it (docs/dashboards), and writes docs/dashboards.md.

Run: ``make dashboards``. The stack is that of tests/e2e/test_observe.py; a real Prometheus evaluates each panel.
Drawing needs matplotlib, which no other program here does: it runs in an environment of its own.
"""

# ruff: noqa: INP001  a script beside the pictures it takes, not a package

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PICTURES: Final = ROOT / "docs" / "dashboards"
PAGE: Final = ROOT / "docs" / "dashboards.md"
FILLED_S: Final = 300.0
"""How long the stack is under load before the panels are evaluated."""
STEP_S: Final = 5.0
MOST_LINES: Final = 8
"""Of a panel, those that rise highest."""
WIDTH_INCHES, ROW_INCHES, DOTS = 11.0, 2.4, 72
QUALITY: Final = 70
UNITS: Final = {"ops": "1/s", "s": "s", "bytes": "B", "Bps": "B/s", "percentunit": "", "short": ""}
HEAD: Final = """# Dashboards

What Grafana of the profile `observe` shows ([deploy.md](deploy.md)), each dashboard under the question that it answers.
The curves are of five minutes of `make up` on one virtual device, with the demonstration and a model in a bucket that
gets a new version every few seconds, as a real Prometheus evaluates them. The alerts are in
[operations.md](operations.md#what-to-do-at-an-alarm). `make dashboards` makes the pictures and this page.
"""


def main() -> None:
    """Load a stack, evaluate every panel, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", type=Path, help="draw what is in this file (in an environment with matplotlib)")
    arguments = parser.parse_args()
    if arguments.draw is not None:
        _draw(json.loads(arguments.draw.read_text(encoding="utf-8")))
        return
    with tempfile.TemporaryDirectory(prefix="signalbox-dashboards-") as folder:
        evaluated = Path(folder) / "evaluated.json"
        evaluated.write_text(json.dumps(_evaluated(Path(folder))), encoding="utf-8")
        uv, python = Path(sys.executable).with_name("uv"), sys.executable
        isolated = ("run", "--quiet", "--isolated", "--no-project", "--python", python)
        needs = ("--with-requirements", str(ROOT / "requirements" / "pictures.txt"))
        subprocess.run([uv, *isolated, *needs, "python", __file__, "--draw", evaluated], check=True)


def _evaluated(folder: Path) -> list[dict[str, Any]]:
    """Name, question and panels of each dashboard; each panel's lines with their legends."""
    from tests.e2e.observed import observed
    from tests.rigs.objectstore import ObjectStoreServer
    from tests.rigs.prometheus import dashboards, expressions, legend

    (folder / "store").mkdir()
    with ObjectStoreServer(folder / "store") as store, observed(folder, store) as prometheus:
        began = time.time()
        time.sleep(FILLED_S)
        found = []
        for made in dashboards():
            panels = {panel["title"]: {"unit": panel["fieldConfig"]["defaults"]["unit"]} for panel in made["panels"]}
            for title, template, expr in expressions(made):
                lines = panels[title].setdefault("lines", [])
                for labels, values in prometheus.over_time(expr, began, began + FILLED_S, STEP_S):
                    lines.append([legend(template, labels), [[at - began, value] for at, value in values]])
            found.append({"name": made["uid"].removeprefix("signalbox-"), "title": made["title"], "panels": panels})
    return found


def _draw(found: list[dict[str, Any]]) -> None:
    PICTURES.mkdir(exist_ok=True)
    for made in found:
        _draw_one(made)
    sections = [f"\n## {made['title']}\n\n![{made['title']}](dashboards/{made['name']}.webp)\n" for made in found]
    PAGE.write_text(HEAD + "".join(sections), encoding="utf-8")


def _draw_one(made: dict[str, Any]) -> None:
    from matplotlib import pyplot as plt

    panels = made["panels"]
    rows = (len(panels) + 1) // 2
    figure, places = plt.subplots(rows, 2, figsize=(WIDTH_INCHES, ROW_INCHES * rows), squeeze=False)
    for place in places.flat[len(panels) :]:
        place.axis("off")
    for place, (title, panel) in zip(places.flat, panels.items(), strict=False):
        unit = UNITS[panel["unit"]]
        place.set_title(f"{title}, {unit}" if unit else title, fontsize=9, loc="left")
        largest = sorted(panel["lines"], key=lambda line: -max(value for _, value in line[1]))
        for name, values in largest[:MOST_LINES]:
            place.plot([at for at, _ in values], [value for _, value in values], label=name[:40], linewidth=1.2)
        place.set_xlim(0, FILLED_S)
        place.set_ylim(bottom=0)
        place.tick_params(labelsize=7)
        place.grid(alpha=0.3)
        place.legend(fontsize=6, loc="upper left", framealpha=0.6)
    figure.suptitle(made["title"], fontsize=13, x=0.01, ha="left")
    figure.tight_layout()
    figure.savefig(PICTURES / f"{made['name']}.webp", dpi=DOTS, pil_kwargs={"quality": QUALITY})
    plt.close(figure)


if __name__ == "__main__":
    main()
