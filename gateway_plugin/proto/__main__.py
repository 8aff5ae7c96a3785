"""Regenerates the stubs from the .proto files beside this module: ``make proto``.

``make proto ARGS=--check`` writes nothing and fails when the committed stubs differ from what would be written. It
needs an old grpcio-tools (``requirements/proto.txt``), which make puts into an environment of its own: stubs import
only with a protobuf at least as new as their compiler, and users of TensorFlow have an old one.
"""

import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parent.parent


def generate(into: Path) -> list[Path]:
    """Writes ``*_pb2.py`` and ``*_pb2.pyi`` below ``into``; returns their paths. Raises SystemExit."""
    sources = sorted(_HERE.glob("*.proto"))
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
    folder = into / _HERE.relative_to(_ROOT)
    return sorted([*folder.glob("*_pb2.py"), *folder.glob("*_pb2.pyi")])


def differing() -> list[str]:
    """Names of committed stubs that differ from what the .proto files give now."""
    with tempfile.TemporaryDirectory() as scratch:
        made = generate(Path(scratch))
        return [
            path.name
            for path in made
            if not (_HERE / path.name).exists() or (_HERE / path.name).read_bytes() != path.read_bytes()
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
