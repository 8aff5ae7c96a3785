# ruff: noqa: INP001, T201  a script beside the files it writes, no package
"""Writes alert rules, their tests and Grafana's dashboards beside itself: ``python deploy/observe/generate.py``.

Everything that is watched stands in ``alerts.py`` and ``dashboards.py``. Each alert has series with which it fires and
series with which it stays silent (``promtool test rules deploy/observe/rules_test.yml``), and names the heading of
docs/operations.md that says what to do. Each dashboard's title is the question that it answers.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -I leaves it out

from alerts import ALERTS
from dashboards import DASHBOARDS, Dashboard, Panel

HERE: Final = Path(__file__).resolve().parent
RULES: Final = "rules.yml"
TESTS: Final = "rules_test.yml"
FOLDER: Final = "dashboards"
PAGE: Final = "docs/operations.md"
SOURCE: Final = {"type": "prometheus", "uid": "signalbox"}
STEP_S: Final = 15
"""Between two samples of a test."""
AT: Final = "20m"
"""When a test looks."""
ALL: Final = ".*"


def anchor(heading: str) -> str:
    """The part of a page's address that leads to a heading."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def rules() -> dict[str, Any]:
    """The alert rules, as Prometheus reads them."""
    found = [
        {
            "alert": alert.name,
            "expr": alert.expr,
            "for": alert.lasts,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.says, "runbook": f"{PAGE}#{anchor(alert.heading)}"},
        }
        for alert in ALERTS
    ]
    return {"groups": [{"name": "signalbox", "rules": found}]}


def tests() -> dict[str, Any]:
    """Tests of the rules, as promtool reads them: of each alert one that fires and one that is silent, and of counters
    one that fires at what is counted first."""
    found = []
    for alert in ALERTS:
        cases = [("fires", alert.fires, 1), ("is silent", alert.silent, 0)]
        if alert.begins:
            cases.append(("fires at the first", alert.begins, 1))
        for how, series, count in cases:
            firing = f'count(ALERTS{{alertname="{alert.name}",alertstate="firing"}})'
            samples = [{"labels": "{}", "value": count}] if count else []
            found.append(
                {
                    "name": f"{alert.name} {how}",
                    "interval": f"{STEP_S}s",
                    "input_series": [{"series": name, "values": values} for name, values in series.items()],
                    "promql_expr_test": [{"expr": firing, "eval_time": AT, "exp_samples": samples}],
                }
            )
    return {"rule_files": [RULES], "evaluation_interval": f"{STEP_S}s", "tests": found}


def dashboard(made: Dashboard) -> dict[str, Any]:
    """One dashboard, as Grafana provisions it: two panels in a row."""
    variables = []
    if made.variable:
        label, metric = made.variable
        variables.append(
            {
                "name": label,
                "type": "query",
                "datasource": SOURCE,
                "query": f"label_values({metric}, {label})",
                "refresh": 2,
                "includeAll": True,
                "allValue": ALL,
                "current": {"text": "All", "value": "$__all"},
            }
        )
    return {
        "uid": f"signalbox-{made.name}",
        "title": made.question,
        "tags": ["signalbox", made.name],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": [_panel(number, panel) for number, panel in enumerate(made.panels)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": {"x": number % 2 * 12, "y": number // 2 * 8, "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for place, (legend, expr) in enumerate(panel.lines.items())
        ],
    }


def files() -> dict[str, str]:
    """What is to be beside this script, by path. Prometheus reads JSON as YAML."""
    made = {RULES: rules(), TESTS: tests()} | {f"{FOLDER}/{each.name}.json": dashboard(each) for each in DASHBOARDS}
    return {path: json.dumps(content, indent=1) + "\n" for path, content in made.items()}


if __name__ == "__main__":
    for path, text in files().items():
        (HERE / path).parent.mkdir(exist_ok=True)
        (HERE / path).write_text(text, encoding="utf-8")
        print(path)
