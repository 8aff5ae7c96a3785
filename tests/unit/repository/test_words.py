"""House words: one helper says counts, so that one of a kind is never plural; docstrings say what is promised."""

import ast
import re
from pathlib import Path

import pytest

from signalbox.program.words import counted

ROOT = Path(__file__).resolve().parents[3]
NOUNS = "jobs|keys|tokens|changes|renewals|requests|connections|decisions|replicas|heads|rows|messages|intervals|queues"
BARE = re.compile(rf"(?<!\{{)\{{(?!counted)[^{{}}]*[a-z)\]][^{{}}]*\}}+ (more )?({NOUNS})\b")
"""A value in a text, of Python, JavaScript or a template, with a plural behind it. A constant may have one."""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (counted(0, "job"), "0 jobs"),
        (counted(1, "job"), "1 job"),
        (counted(2, "job"), "2 jobs"),
        (counted(1.0, "day"), "1 day"),
        (counted(0.5, "day"), "0.5 days"),
        (counted(1_204_001, "job"), "1204001 jobs"),
        (counted(1, "job waits", "jobs wait"), "1 job waits"),
        (counted(7, "job waits", "jobs wait"), "7 jobs wait"),
    ],
)
def test_one_is_singular_and_anything_else_plural(said: str, expected: str) -> None:
    assert said == expected


def test_no_text_of_the_console_has_a_plural_behind_a_bare_count() -> None:
    sources = [path for end in ("py", "js", "html") for path in sorted((ROOT / "console").rglob(f"*.{end}"))]
    assert len(sources) > 200
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "@param" not in line and "counted" not in line
        if BARE.search(line) or "pluralize" in line or '=== 1 ? ""' in line
    ]
    assert found == []


PRODUCT = ("signalbox", "gateway_plugin", "workers", "console", "benchmarks")
HOLLOW = re.compile(r"\s*(The same|It|As|See|Likewise)\b")
"""A docstring that begins so sends its reader elsewhere before it has said anything."""


def test_every_docstring_begins_with_what_is_promised() -> None:
    sources = [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(sources) > 500
    found = []
    for path in sources:
        source = path.read_text()
        if "migrations" in path.parts or not any(HOLLOW.match(text) for text in source.split('"""')):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                said = ast.get_docstring(node) or ""
                if HOLLOW.match(said):
                    found.append(f"{path.relative_to(ROOT)}: {said.splitlines()[0][:120]}")
    assert found == []
