"""The networks of a production stack: who reaches whom, and that nothing of a run is left, however it ended."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from verification.production import machine
from verification.production.compose import Compose, DeclaredNetwork, Service
from verification.production.network import Network as Networks

COMPOSE: Final = Compose(
    services={
        "a": Service(image="redis:7", networks=("one",)),
        "b": Service(image="redis:7", networks=("one", "two")),
        "c": Service(image="redis:7", networks=("two",)),
    },
    networks={"one": DeclaredNetwork(internal=True), "two": DeclaredNetwork(internal=True)},
)
RUN: Final = """
import json, signal
from verification.production.network import Network
from tests.integration.verification.test_production_network import COMPOSE
with Network(COMPOSE, "ip") as network:
    print(json.dumps([network.namespace("a"), *network.bridges.values()]), flush=True)
    signal.pause()
"""


@pytest.fixture(autouse=True)
def rights() -> None:
    if lacking := machine._lacking():
        pytest.skip(f"this machine lacks {'; '.join(lacking)}")


@pytest.fixture
def networks() -> Iterator[Networks]:
    with Networks(COMPOSE, "ip") as made:
        yield made


def reaches(address: str, *, within: str = "") -> bool:
    """Whether a connection, from a namespace, is answered at all; nothing listens, so the answer is a refusal."""
    program = f"import socket; socket.create_connection(('{address}', 9), 60)"
    enter = ["ip", "netns", "exec", within] if within else []
    done = subprocess.run(
        [*enter, sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False
    )
    return "ConnectionRefusedError" in done.stderr


def test_services_reach_those_on_their_networks_and_nobody_else(networks: Networks) -> None:
    b, c = networks.links["b"], networks.links["c"]
    within = networks.namespace("a")
    assert reaches(b[0].address, within=within)
    assert reaches(b[1].address, within=networks.namespace("c"))
    for address in (c[0].address, b[1].address, "192.0.2.1"):
        assert not reaches(address, within=within)


def test_what_a_killed_run_has_left_the_next_removes() -> None:
    root = Path(__file__).resolve().parents[3]
    run = subprocess.Popen([sys.executable, "-c", RUN], cwd=root, stdout=subprocess.PIPE, text=True, env={**os.environ})
    assert run.stdout is not None
    with run.stdout as lines:
        namespace, *bridges = json.loads(lines.readline())
        run.send_signal(signal.SIGKILL)
        run.wait(60)
    left = [Path("/run/netns", namespace), *(Path("/sys/class/net", name) for name in bridges)]
    assert all(path.exists() for path in left)
    ip = shutil.which("ip")
    assert ip is not None
    with Networks(COMPOSE, ip) as made:
        assert not any(path.exists() for path in left)
        ours = [Path("/run/netns", made.namespace(name)) for name in "abc"]
        assert all(path.exists() for path in ours)
    assert not any(path.exists() for path in ours)


def test_what_the_machine_lacks_is_said_with_its_mend_before_anything_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "verification.production", "--data", str(tmp_path / "data")],
        env={**os.environ, "SIGNALBOX_TYK_BIN": "/nowhere/tyk"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 1
    assert "lacks Tyk: SIGNALBOX_TYK_BIN=/nowhere/tyk is no program" in done.stderr
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["lock", "logs"]
