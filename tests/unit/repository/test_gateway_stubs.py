"""The stubs that protoc has written import with the oldest protobuf that pyproject.toml allows."""

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
FLOOR: Final = re.compile(r"protobuf>=([\d.]+)\Z")


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@pytest.mark.parametrize(("extra", "program"), [("gateway", "gateway_plugin"), ("worker", "workers")])
def test_the_compiler_of_the_stubs_is_no_newer_than_the_floor_of_protobuf(extra: str, program: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (floor,) = [found[1] for one in extras[extra] if (found := FLOOR.match(one))]
    stubs = list((ROOT / program).rglob("*_pb2.py"))
    assert stubs
    for stub in stubs:
        text = stub.read_text()
        (compiler,) = re.findall(r"^# Protobuf Python Version: ([\d.]+)$", text, re.MULTILINE)
        assert version(compiler) <= version(floor), stub
