"""Each program has in its own lock every package that its code imports: an image has nothing else."""

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OURS = {"signalbox", "gateway_plugin", "workers", "console"}
ELSEWHERE = {
    ("gateway", "cryptography"): "signs with a host's key, which no gateway has",
    ("gateway", "grpc_tools"): "makes the stubs: make proto",
    ("worker", "sklearn"): "has the digits of the demonstration models: the extra demo",
}
"""Not in an image, and needed by nothing that runs in one."""


def source(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.exists()), None)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module.partition(".")[0] in OURS:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def foreign(package: str, run: str) -> dict[str, str]:
    """What is imported from others by a package of ours, a module that it runs, and all that they import: each with
    one module that does."""
    modules = (str(path.relative_to(ROOT).with_suffix("")) for path in (ROOT / package).rglob("*.py"))
    left = [run, *(module.replace("/", ".").removesuffix(".__init__") for module in modules)]
    seen: set[str] = set()
    found: dict[str, str] = {}
    while left:
        module = left.pop()
        path = source(module)
        if module in seen or path is None:
            continue
        seen.add(module)
        left.append(module.rpartition(".")[0] or module)
        for name in imported(path):
            top = name.partition(".")[0]
            if top in OURS:
                left.append(name)
            elif top not in sys.stdlib_module_names:
                found.setdefault(top, module)
    return found


@pytest.mark.parametrize(
    ("lock", "package", "run"),
    [
        ("gateway", "gateway_plugin", "signalbox"),
        ("worker", "workers", "signalbox"),
        ("worker-cuda", "workers", "signalbox"),
        ("console", "console", "workers.inspect"),
    ],
)
def test_every_package_that_a_program_imports_is_in_its_lock(lock: str, package: str, run: str) -> None:
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / f"{lock}.txt").read_text("utf-8"), re.MULTILINE)
    locked = {re.sub("[-_.]+", "-", pin).lower() for pin in pins}
    installed = packages_distributions()
    image = lock.removesuffix("-cuda")
    missing = {
        (image, name): module
        for name, module in foreign(package, run).items()
        if not {re.sub("[-_.]+", "-", each).lower() for each in installed.get(name, [name])} & locked
    }
    if lock == "worker-cuda":
        missing.pop((image, "tensorflow"), None)  # what is installed here is tensorflow-cpu
    assert missing.keys() == {key for key in ELSEWHERE if key[0] == image}, missing
