"""Commands of containers, tried with their environments: what docker-compose.yml and the chart have in common."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_TAKEN: Final = (
    "import os; from signalbox.program.settings import *; print(describe(load(Wire, PREFIX, os.environ), PREFIX))"
)
"""What a command of ``signalbox`` that has no --check-config takes of its environment."""
_CHECKED: Final = ("host",)


def taken(argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> str:
    """What the program says that it runs with, by its ``--check-config``. The command must be one that there is."""
    from django.core.management import get_commands

    assert tuple(argv[:2]) == ("python", "-m")
    program, *arguments = argv[2:]
    command = [sys.executable, "-m", program]
    if program == "signalbox":
        words = [word for word in arguments if not word.startswith("-")]
        if words[0] in _CHECKED:
            command += arguments
        else:
            acts = words[: 2 if words[0] == "topology" else 1]
            reported = run([*command, *acts, "--help"], dict(os.environ), folder).stdout
            for option in (word for word in arguments if word.startswith("-")):
                assert option in reported, option
            command = [sys.executable, "-c", _TAKEN]
    elif program == "console":
        assert arguments[0] in get_commands()
    else:
        assert arguments == []
    bare = {name: text for name, text in os.environ.items() if not name.startswith("SIGNALBOX_")}
    checked = command if command[1] == "-c" else [*command, "--check-config"]
    return run(checked, {**bare, **environment}, folder).stdout


def untaken(environment: Mapping[str, str], shown: str) -> set[str]:
    """Variables that are no setting of the program that said this of itself."""
    names = {line.partition("=")[0] for line in shown.splitlines()}
    return {name for name in environment if name not in names and name.removesuffix("_FILE") not in names}


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """One of our programs, away from the repository's folder; it must end well."""
    asked = subprocess.run(
        command,
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    return asked
