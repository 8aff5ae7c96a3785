"""The stubs of the coprocess protocol import with the oldest protobuf that pyproject.toml allows."""

import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
FLOOR: Final = re.compile(r"protobuf>=([\d.]+)\Z")


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def test_the_compiler_of_the_stubs_is_no_newer_than_the_floor_of_protobuf() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (floor,) = [found[1] for one in extras["gateway"] if (found := FLOOR.match(one))]
    stubs = list((ROOT / "gateway_plugin").rglob("*_pb2.py"))
    assert stubs
    for stub in stubs:
        text = stub.read_text()
        (compiler,) = re.findall(r"^# Protobuf Python Version: ([\d.]+)$", text, re.MULTILINE)
        assert version(compiler) <= version(floor), stub
