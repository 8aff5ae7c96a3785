"""Pages made from code say what the code says."""

import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from signalbox.program.errors import MEANINGS
from signalbox.wire import assets, names, queuenames, roles

DOCS = Path(__file__).resolve().parents[3] / "docs"
CITED = re.compile(rb"(?:ADR |docs/adr/)([0-9]{4})\b")
"""A decision, by its number; links are for test_up_docs."""


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generate.py"))["PAGES"]  # type: ignore[no-any-return]  # a script


@pytest.mark.parametrize("page", ["settings.md", "errors.md", "metrics.md"])
def test_a_made_page_is_as_the_code_makes_it(made: dict[str, Any], page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == made[page]() + "\n", "run: python docs/generate.py"


def test_every_decision_that_is_cited_exists() -> None:
    root = DOCS.parent
    kept = {page.name[:4] for page in (DOCS / "adr").glob("[0-9]*.md")}
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True)
    cited = {
        (name, number.decode())
        for name in listed.stdout.decode().split("\0")
        if (root / name).is_file()
        for number in CITED.findall((root / name).read_bytes())
    }
    assert cited
    assert sorted(each for each in cited if each[1] not in kept) == []


def test_every_decision_stands_in_the_index_and_none_that_is_gone() -> None:
    index = (DOCS / "adr" / "README.md").read_text("utf-8")
    decisions = [page.name for page in (DOCS / "adr").glob("[0-9]*.md")]
    assert [name for name in decisions if f"]({name})" not in index] == []
    rows = re.findall(r"^\| ([0-9, ]+) \|", index, re.MULTILINE)
    gone = {number for row in rows for number in row.split(", ")}
    assert len(gone) > 50
    assert gone.isdisjoint(name[:4] for name in decisions)


def test_every_error_code_has_its_line() -> None:
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert [code for code in MEANINGS if f"| `{code}` |" not in text] == []


def test_every_stream_bucket_header_and_role_is_on_the_wire_page() -> None:
    text = (DOCS / "wire.md").read_text(encoding="utf-8")
    wanted = [config["name"] for config in assets.STREAMS if not config["name"].startswith("KV_")]
    wanted += [bucket.value for bucket in names.Bucket]
    wanted += [names.Header.JOB.value, names.Header.RECORD.value, *roles.USERS]
    wanted += [names.Header.TAGS.value, names.Header.REQUEST.value, queuenames.REAR, queuenames.QUEUES_ACCOUNT]
    assert [name for name in wanted if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", ["migrate.md", "operations.md", "fleet.md"])
def test_every_metric_that_a_page_names_is_one_that_a_program_serves(page: str) -> None:
    name = r"`((?:signalbox|tfservingcache)_[a-z_]+)[`{]"
    served = set(re.findall(rf"^\| {name}", (DOCS / "metrics.md").read_text("utf-8"), re.MULTILINE))
    wanted = {re.sub(r"_(sum|count)$", "", each) for each in re.findall(name, (DOCS / page).read_text("utf-8"))}
    assert [each for each in sorted(wanted) if each not in served] == []


def test_every_test_that_the_fleets_table_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "fleet.md").read_text()))
    files = list((DOCS.parent / "tests").rglob("test_*.py"))
    modules = {file.stem for file in files}
    functions = {name for file in files for name in re.findall(r"def (test_\w+)\(", file.read_text())}
    assert named
    assert named <= modules | functions


@pytest.mark.parametrize("page", ["guarantees", "security"])
def test_every_test_that_a_promise_names_is_there(page: str) -> None:
    named = set(re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){4,})`", (DOCS / f"{page}.md").read_text("utf-8")))
    sources = [
        file.read_text("utf-8") for part in ("tests", "verification") for file in (DOCS.parent / part).rglob("*.py")
    ]
    functions = {name for text in sources for name in re.findall(r"def (?:test_)?(\w+)\(", text)}
    metrics = (DOCS / "metrics.md").read_text("utf-8")
    assert len(named) > 2
    assert {name for name in named if f"signalbox_{name}" not in metrics} <= functions


def test_each_requirement_of_the_queue_product_has_its_row_and_each_test_there_is_one() -> None:
    rows = re.findall(r"^\| (S4\.\w+) \|.*\|.*\| (.*)\|$", (DOCS / "eas.md").read_text("utf-8"), re.MULTILINE)
    wanted = [f"S4.{number}" for number in range(1, 25)] + [f"S4.P{number}" for number in range(1, 16)]
    assert [name for name, _ in rows] == wanted
    shown = {name: re.findall(r"`(test_\w+)`", tests) for name, tests in rows}
    assert [name for name, tests in shown.items() if not tests] == ["S4.2"]
    text = "\n".join(file.read_text("utf-8") for file in (DOCS.parent / "tests").rglob("test_*.py"))
    functions = set(re.findall(r"def (test_\w+)\(", text))
    assert {test for tests in shown.values() for test in tests} <= functions
