"""What a container of a production stack sees of this machine."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from verification.production import machine
from verification.production.compose import Compose, DeclaredNetwork, Service
from verification.production.images import Image, Mount
from verification.production.launch import Builder
from verification.production.machine import Machine
from verification.production.network import Network

LIMIT_S = 60.0
NOBODY = 65534
COMPOSE = Compose(
    services={"a": Service(image="redis:7", networks=("one",), volumes=("data:/tmp/of-the-image/data",))},
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
