"""Pages that point somewhere point at something."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.rows import BROWSER, NETWORK, ROWS, Row, _next

ROOT: Final = Path(__file__).resolve().parents[3]
LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    targets = [t for t in LINK.findall(page.read_text()) if "://" not in t]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_the_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert not {page for page in pages if f"({page})" not in text}


def test_every_lint_exception_has_its_reason_on_the_same_line() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    ruff = tomllib.loads(text)["tool"]["ruff"]["lint"]
    rules = [*ruff["ignore"], *(r for found in ruff["per-file-ignores"].values() for r in found)]
    bare = [rule for rule in rules if not any(re.search(rf'"{rule}".*#\s*\S', line) for line in text.splitlines())]
    assert not bare


def test_the_ci_runs_the_readmes_commands() -> None:
    ci, readme = (ROOT / ".ci" / "run").read_text(), (ROOT / "README.md").read_text()
    for command in ("make test", "make verify"):
        assert re.search(rf"^{command}\b", ci, re.MULTILINE)
        assert re.search(rf"^{command}\b", readme, re.MULTILINE)


def test_pre_commit_runs_the_checks_of_make_lint() -> None:
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", "lint", "VENV=.venv"]
    reported = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = [line for line in reported.splitlines() if re.match(r"\.venv/bin/(?!python|uv)", line)]
    assert len(wanted) >= 4
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == wanted
    ways = [(hook["language"], hook["pass_filenames"]) for hook in repository["hooks"]]
    assert set(ways) == {("system", False)}


def test_the_ci_runs_the_proofs_after_failed_tests_and_fails(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "ran $1"\n[ "$1" = verify ]\n')
    make.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run([ROOT / ".ci" / "run"], env={"PATH": path}, capture_output=True, text=True, check=False)
    assert done.stdout == "ran test\nran verify\n"
    assert done.stderr == "failed: make test\n"
    assert done.returncode == 1


def test_every_file_of_tests_is_in_one_row() -> None:
    tests = [str(test.relative_to(ROOT)) for test in (ROOT / "tests").rglob("test_*.py")]
    given = [argument for row in ROWS["test"] for argument in row.arguments]
    rows = {test: sum(map(test.startswith, given)) for test in tests}
    apart = BROWSER + NETWORK
    twice = {test for test in tests if test.startswith(apart)}
    assert {test: count for test, count in rows.items() if count != 1} == dict.fromkeys(twice, 2)
    assert {f"--ignore={each}" for each in apart} <= set(given)


def test_no_browser_runs_beside_tests_that_change_the_machine_s_interfaces() -> None:
    browser, network, other = Row("b", (), has_browser=True), Row("n", (), has_interfaces=True), Row("o", ())
    assert _next([network, other], [browser]) is other
    assert _next([network], [browser]) is None
    assert _next([browser, other], [network]) is other
    assert _next([network, other], [other]) is network


def test_locked_dependencies_name_no_host_and_have_hashes() -> None:
    locks = [*(ROOT / "requirements").glob("*.txt"), *(ROOT / "tests" / "conformance" / "clients").glob("*.lock")]
    assert len(locks) == 16
    for lock in locks:
        text = lock.read_text()
        assert "://" not in text
        pins = re.findall(r"^[\w.-]+==\S+ \\$", text, re.MULTILINE)
        assert pins
        assert len(re.findall(r"^\S", text, re.MULTILINE)) == len(pins)
