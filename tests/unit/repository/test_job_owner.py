"""A job has one owner: no program writes a job's record or message. That none imports the transitions, lint holds."""

import ast
from collections.abc import Iterator
from pathlib import Path

import signalbox

ROOT = Path(signalbox.__file__).parents[1]
OWNER = ROOT / "signalbox" / "jobs"
STREAMS = {"Stream.STATE", "Stream.JOBS"}
SUBJECTS = {"names.state", "names.job", "state", "job_subject"}


def writes(source: str) -> Iterator[str]:
    """Calls that write a record or a job, or get what writes them."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, act = ast.unparse(node.func.value), node.func.attr
        given = ast.unparse(node.args[0]) if node.args else ""
        is_record = act in {"write", "write_all"} and owner.endswith("records")
        is_writer = act == "grouped" and given in STREAMS
        is_subject = act in {"write", "publish"} and given.partition("(")[0] in SUBJECTS
        if is_record or is_writer or is_subject:
            yield ast.unparse(node)


def found_in(*folders: Path) -> list[str]:
    files = [file for folder in folders for file in folder.rglob("*.py") if OWNER not in file.parents]
    return [f"{file.relative_to(ROOT)}: {call}" for file in files for call in writes(file.read_text())]


def test_no_program_writes_a_job_s_record_or_message() -> None:
    assert found_in(*(ROOT / name for name in ("gateway_plugin", "workers", "console", "signalbox"))) == []


def test_the_owner_s_own_writes_are_seen() -> None:
    seen = {file.name for file in OWNER.glob("*.py") for _ in writes(file.read_text())}
    assert seen >= {"cancel.py", "commits.py", "records.py", "repair.py", "message.py"}
