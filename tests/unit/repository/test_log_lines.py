"""Every log line about a job names the job and its trace, in every program."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("signalbox", "workers", "gateway_plugin", "console")
LEVELS = {"debug", "info", "warning", "error", "exception"}


def log_calls(path: Path) -> Iterator[ast.Call]:
    """Calls of a logger's methods: ``log.info(...)``, ``self._log.info(...)``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("log") | ast.Attribute(attr="_log"), attr=level)):
                if level in LEVELS:
                    yield node


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_line_that_names_a_job_names_its_trace(program: str) -> None:
    found = 0
    for path in (ROOT / program).rglob("*.py"):
        for call in log_calls(path):
            found += 1
            fields = {keyword.arg for keyword in call.keywords}
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            assert "job_id" not in fields, f"{where}: a job's id is called job; use joblog.ids"
            assert "job" not in fields or "trace" in fields, f"{where}: use joblog.ids, or joblog.only_id"
    assert found > 10
