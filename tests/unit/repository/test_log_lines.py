"""Every log line about a job names the job and its trace, in every program."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("signalbox", "workers", "gateway_plugin", "console")
ABOUT_A_JOB = {
    "forwarding.item_failed": "gateway_plugin",
    "forwarding.item_dead": "gateway_plugin",
    "forwarding.result_refused": "gateway_plugin",
    "forwarding.waits": "gateway_plugin",
    "gateway.event_unreadable": "gateway_plugin",
    "gateway.reply_unreadable": "gateway_plugin",
    "outbound.unreadable_record": "gateway_plugin",
    "intake.newer": "workers",
    "projector.unreadable": "console",
}
"""Events of one job that do not name it as such, by the program that logs them."""
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
    found, seen = 0, set[str]()
    for path in (ROOT / program).rglob("*.py"):
        for call in log_calls(path):
            found += 1
            fields = {keyword.arg for keyword in call.keywords}
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            assert "job_id" not in fields, f"{where}: a job's id is called job; use joblog.ids"
            assert "job" not in fields or "trace" in fields, f"{where}: use joblog.ids, or joblog.only_id"
            told = call.args[0].value if isinstance(call.args[0], ast.Constant) else ""
            assert told not in ABOUT_A_JOB or None in fields, f"{where}: {told} is about one job: use joblog.ids"
            seen.add(str(told))
    assert found > 10
    assert {each for each in ABOUT_A_JOB if ABOUT_A_JOB[each] == program} <= seen
