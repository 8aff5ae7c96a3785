"""What a container of a production stack sees of this machine."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from verification.production import machine
from verification.production.compose import Compose, DeclaredNetwork, Service
from verification.production.images import Image, Mount
from verification.production.launch import Builder
from verification.production.machine import Machine
from verification.production.network import Network

LIMIT_S = 60.0
NOBODY = 65534
SERVICE = Service(image="redis:7", networks=("one",), volumes=("data:/tmp/of-the-image/data",))
COMPOSE = Compose(
    services={"a": SERVICE, "read": replace(SERVICE, read_only=True, tmpfs=("/tmp",))},  # noqa: S108  its own
    networks={"one": DeclaredNetwork(internal=True)},
    volumes={"data": None},
)


@pytest.fixture(autouse=True)
def rights() -> None:
    if lacking := machine._lacking():
        pytest.skip(f"this machine lacks {'; '.join(lacking)}")


@pytest.fixture
def checkout() -> Iterator[Path]:
    """Below a folder in /tmp that only root enters."""
    with tempfile.TemporaryDirectory(prefix="signalbox-checkout-", dir="/tmp") as folder:
        made = Path(folder) / "checkout"
        made.mkdir()
        (made / "python").write_text("of the checkout\n")
        yield made


def test_an_environment_below_tmp_is_there_beside_the_containers_own_tmp(tmp_path: Path, checkout: Path) -> None:
    """As of a checkout there. Its mount is asked for first, as an image's are."""
    tools = {name: str(shutil.which(name)) for name in machine.TOOLS}
    nothing = Path("/")
    here = Machine(tyk=nothing, postgres=nothing, nats=nothing, nats_version="", tools=tools, python=nothing)
    shell = f"cat {checkout}/python && touch /tmp/mine && (ls /tmp; ls /tmp/of-the-image) | sort"
    image = Image(
        argv=("/bin/sh", "-c", shell),
        user="nobody",
        uid=NOBODY,
        gid=NOBODY,
        mounts=(Mount(str(checkout), str(checkout)),),
    )
    with Network(COMPOSE, tools["ip"]) as network:
        box = Builder(COMPOSE, here, tmp_path, tmp_path, {}).box("a", image, namespace=network.namespace("a"), hosts="")
        ended = subprocess.run(box.argv, capture_output=True, text=True, timeout=LIMIT_S, umask=0o077, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [
        "of",
        "the",
        "checkout",
        *sorted(["data", "mine", "of-the-image", checkout.parent.name]),
    ]


def test_a_container_of_ours_writes_to_its_own_tmp_and_to_volumes_and_nowhere_else_not_even_as_root(
    tmp_path: Path,
) -> None:
    tools = {name: str(shutil.which(name)) for name in machine.TOOLS}
    nothing = Path("/")
    here = Machine(tyk=nothing, postgres=nothing, nats=nothing, nats_version="", tools=tools, python=nothing)
    shell = "touch /tmp/mine /tmp/of-the-image/data/mine && touch /mine"
    image = Image(argv=("/bin/sh", "-c", shell))
    with Network(COMPOSE, tools["ip"]) as network:
        builder = Builder(COMPOSE, here, tmp_path, tmp_path, {})
        box = builder.box("read", image, namespace=network.namespace("read"), hosts="")
        ended = subprocess.run(box.argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (ended.returncode, ended.stderr.count("Read-only file system")) == (1, 1), ended.stderr
    assert "'/mine'" in ended.stderr
