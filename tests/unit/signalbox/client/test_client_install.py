"""What a base install brings is enough for the client."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ImportError(f"{name} is no part of a base install")

sys.meta_path.insert(0, Blocked())
from signalbox.client import AsyncClient, Client
Client("http://127.0.0.1:1", "k").close()
print(sorted({name.partition(".")[0] for name in sys.modules} & {"httpx", "numpy"}))
"""


def names(requirements: list[str]) -> set[str]:
    """Import names of requirements; those of the programs are told apart from their distributions' names here."""
    known = {"nats-py": "nats", "grpcio": "grpc", "tensorflow-cpu": "tensorflow", "protobuf": "google"}
    bare = {one.partition("[")[0].partition(">")[0].partition("<")[0] for one in requirements}
    return {known.get(one, one.replace("-", "_")) for one in bare}


def test_importing_the_client_imports_nothing_of_the_programs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = names(project["dependencies"])
    assert base == {"httpx", "numpy"}
    extras = project["optional-dependencies"]
    programs = names([one for extra in ("program", "gateway", "worker", "console") for one in extras[extra]])
    blocked = programs - base - {"signalbox"}
    assert {"msgspec", "nats", "structlog", "prometheus_client", "grpc", "tensorflow", "django"} <= blocked
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *sorted(blocked)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "['httpx', 'numpy']\n"), done.stderr
