"""A port is given once, to one, and never to a connection that goes out."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from signalbox.ops.ports import HOST, choose_port, free_port
from signalbox.program.errors import Misconfigured

_FIRST = "from signalbox.ops.ports import free_port; print(*(free_port() for _ in range(300)), flush=True); input()"


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind((HOST, 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_a_port_is_given_once() -> None:
    given = [free_port() for _ in range(600)]
    assert len(set(given)) == len(given)


def test_a_port_given_can_be_listened_on() -> None:
    with socket.socket() as program:
        program.bind((HOST, free_port()))


def test_the_system_gives_none_of_ours_by_itself() -> None:
    """It did to a connection that went out: of 240 clusters one had a node whose port was taken before it started."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first <= 10_000:
        pytest.skip("this system gives nearly all ports by itself")
    assert max(free_port() for _ in range(100)) < first


def test_what_another_process_was_given_is_given_to_nobody_else_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    narrow = "import signalbox.ops.ports as p; p._LOWEST, p._HIGHEST = 20_000, 20_399\n"
    with subprocess.Popen(
        [sys.executable, "-c", narrow + _FIRST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        theirs = set(first.stdout.readline().split())
        assert len(theirs) == 300
        second = [sys.executable, "-c", narrow + _FIRST]
        refused = subprocess.run(second, input="\n", capture_output=True, text=True, check=False)
        assert "No port from 20000 to 20399 is free" in refused.stderr
        first.communicate("\n")
    again = subprocess.run(second, input="\n", capture_output=True, text=True, check=True)
    assert len(set(again.stdout.split())) == 300


def test_a_port_asked_for_and_taken_is_refused_by_name(taken_port: int) -> None:
    with pytest.raises(Misconfigured, match=rf"Port {taken_port}, asked for as --port"):
        choose_port(taken_port, 8080, "--port")


def test_the_usual_port_is_replaced_by_a_free_one_when_taken(taken_port: int) -> None:
    chosen = choose_port(None, taken_port, "--port")
    assert chosen not in {0, taken_port}


def test_a_port_asked_for_and_free_is_taken(taken_port: int) -> None:
    free = choose_port(0, taken_port, "--port")
    assert choose_port(free, taken_port, "--port") == free
