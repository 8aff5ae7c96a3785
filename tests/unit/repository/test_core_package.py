"""What pyproject.toml declares is true."""

import re
import tomllib
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
PACKAGES: Final = ("signalbox", "gateway_plugin", "workers", "console")
BY_NAME: Final = {
    "argon2-cffi": "Django's hasher of passwords",
    "psycopg": "Django's driver of PostgreSQL",
}
"""Dependencies that no module of ours imports, and why they are there."""


def test_a_module_imports_each_dependency_of_a_program() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    programs = (extras[name] for name in ("gateway", "worker", "console", "demo"))
    wanted = {re.split(r"[^\w-]", line)[0] for line in chain(project["dependencies"], *programs)}
    modules: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for distribution in distributions:
            modules.setdefault(distribution.lower().replace("_", "-"), set()).add(module)
    sources = chain.from_iterable((ROOT / folder).rglob("*.py") for folder in PACKAGES)
    text = "\n".join(source.read_text() for source in sources)
    # Django names applications, middleware and backends in strings.
    named = {*re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE), *re.findall(r'"(\w+)[".]', text)}
    idle = {name for name in wanted if not modules.get(name, set()) & named}
    assert idle == set(BY_NAME)
