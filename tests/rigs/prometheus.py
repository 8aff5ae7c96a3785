"""A real Prometheus (Debian's package) that scrapes programs of this machine every second and evaluates our rules."""

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from signalbox.ops.ports import HOST, free_port

ROOT: Final = Path(__file__).resolve().parents[2]
OBSERVE: Final = ROOT / "deploy" / "observe"
START_S: Final = 60.0
END_S: Final = 30.0
POLL_S: Final = 0.2
WINDOW: Final = "1m"
"""What stands for Grafana's rate interval."""
Series = tuple[dict[str, str], list[tuple[float, float]]]


def generated() -> dict[str, str]:
    """The files that deploy/observe/generate.py makes, by path."""
    code = "import json, runpy; print(json.dumps(runpy.run_path('generate.py')['files']()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=OBSERVE, capture_output=True, check=True, timeout=60)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def dashboards() -> list[dict[str, Any]]:
    """The dashboards as they are provisioned."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((OBSERVE / "dashboards").glob("*.json"))]


def expressions(dashboard: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Title of the panel, legend and expression, Grafana's variables replaced."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expr = target["expr"].replace("$__rate_interval", WINDOW)
            yield panel["title"], target["legendFormat"], re.sub(r"\$(model|device)\b", ".*", expr)


def legend(template: str, labels: Mapping[str, str]) -> str:
    """What Grafana calls a series: its labels in the place of their names."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template)


def job_of(program: str) -> str:
    """The scrape job of a program of ``signalbox up``."""
    return "worker" if program.startswith("worker-") else program


class Prometheus:
    """One server. metrics: addresses to scrape, by the program that serves them."""

    def __init__(self, folder: Path, metrics: Mapping[str, str]) -> None:
        self._folder = folder
        self._url = f"http://{HOST}:{free_port()}"
        jobs: dict[str, list[str]] = {}
        for program, url in metrics.items():
            jobs.setdefault(job_of(program), []).append(urllib.parse.urlsplit(url).netloc)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(OBSERVE / "rules.yml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in jobs.items()
            ],
        }
        folder.mkdir(parents=True)
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        program = shutil.which("prometheus")
        assert program is not None
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={urllib.parse.urlsplit(self._url).netloc}",
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while not self._is_ready():
            words = (self._folder / "log").read_text(encoding="utf-8")[-2000:]
            assert self._process.poll() is None, words
            assert time.monotonic() < deadline, words
            time.sleep(POLL_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(END_S)

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of an instant vector, now."""
        found: list[dict[str, Any]] = self._asked("/api/v1/query", query=expr)["result"]
        return found

    def over_time(self, expr: str, start: float, end: float, step_s: float) -> list[Series]:
        """The series from ``start`` to ``end`` (UTC seconds): labels, and instants with values."""
        asked = self._asked("/api/v1/query_range", query=expr, start=f"{start}", end=f"{end}", step=f"{step_s}")
        return [(one["metric"], [(at, float(value)) for at, value in one["values"]]) for one in asked["result"]]

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=END_S):  # noqa: S310  our own
                return True
        except OSError:
            return False

    def _asked(self, path: str, **fields: str) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, data=urllib.parse.urlencode(fields).encode())  # noqa: S310  our own
        try:
            with urllib.request.urlopen(request, timeout=END_S) as answer:  # noqa: S310  see above
                found: dict[str, Any] = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{fields}: {error.read().decode()[:500]}") from error
        return found
