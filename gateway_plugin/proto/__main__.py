"""Regenerates the stubs from the .proto files of gateway and workers: ``make proto``.

``make proto ARGS=--check`` writes nothing and fails when the committed stubs differ from what would be written. It
needs an old grpcio-tools (``requirements/proto.txt``), which make puts into an environment of its own: stubs import
only with a protobuf at least as new as their compiler, and users of TensorFlow have an old one.
"""

import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

_ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("gateway_plugin/proto", "workers/proto")


def generate(into: Path) -> list[Path]:
    """Writes ``*_pb2.py`` and ``*_pb2.pyi`` below ``into``; returns their paths. Raises SystemExit."""
    sources = sorted(source for folder in _FOLDERS for source in (_ROOT / folder).glob("*.proto"))
    include = resources.files("grpc_tools") / "_proto"
    arguments = [
        "protoc",
        f"-I{_ROOT}",
        f"-I{include}",
        f"--python_out={into}",
        f"--pyi_out={into}",
        *(str(source.relative_to(_ROOT)) for source in sources),
    ]
    if protoc.main(arguments) != 0:
        msg = "protoc refused the .proto files; its message stands above"
        raise SystemExit(msg)
    return sorted(stub for folder in _FOLDERS for stub in (into / folder).glob("*_pb2.py*"))


def differing() -> list[str]:
    """Names of committed stubs that differ from what the .proto files give now."""
    with tempfile.TemporaryDirectory() as scratch:
        made = generate(Path(scratch))
        stubs = {path: _ROOT / path.relative_to(scratch) for path in made}
        return [
            path.name for path, kept in stubs.items() if not kept.exists() or kept.read_bytes() != path.read_bytes()
        ]


def main(arguments: list[str]) -> int:
    """The command; returns its exit status."""
    if arguments == ["--check"]:
        names = differing()
        for name in names:
            sys.stderr.write(f"{name} is not what the .proto gives: run make proto\n")
        return 1 if names else 0
    generate(_ROOT)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
