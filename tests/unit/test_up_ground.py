"""The data folder, its secrets and the ports of ``signalbox up``."""

import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from signalbox.errors import Misconfigured
from signalbox.up.ground import DataDir, choose_port


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_a_second_stack_in_the_same_folder_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    held_by_us = rf"pid {os.getpid()}.*--data"
    with DataDir(tmp_path), pytest.raises(Misconfigured, match=held_by_us), DataDir(tmp_path):
        pass


def test_a_folder_given_back_can_be_taken_again(tmp_path: Path) -> None:
    with DataDir(tmp_path):
        pass
    with DataDir(tmp_path) as data:
        assert data.path == tmp_path


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    with pytest.raises(Misconfigured, match=str(in_the_way)), DataDir(in_the_way):
        pass


def test_a_full_disk_is_refused_with_what_is_free_and_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage(NamedTuple):
        total: int = 10**9
        used: int = 10**9
        free: int = 3 * 1024**2

    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage())
    told = "3 MB free; Signalbox needs 512 MB"
    with pytest.raises(Misconfigured, match=told), DataDir(tmp_path):
        pass


def test_a_secret_is_made_once_kept_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    path = data.secret("pepper")
    text = path.read_text()
    assert len(text) >= 32
    assert data.secret("pepper").read_text() == text
    assert data.secret("other").read_text() != text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_running_stacks_file_is_private_and_replaced_whole(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.write_json("up.json", {"front": "a"})
    path = data.write_json("up.json", {"front": "b"})
    assert data.read_json("up.json") == {"front": "b"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["up.json"]


def test_a_port_asked_for_and_taken_is_refused_by_name(taken_port: int) -> None:
    with pytest.raises(Misconfigured, match=rf"Port {taken_port}, asked for as --port"):
        choose_port(taken_port, 8080, "--port")


def test_the_usual_port_is_replaced_by_a_free_one_when_taken(taken_port: int) -> None:
    chosen = choose_port(None, taken_port, "--port")
    assert chosen not in {0, taken_port}


def test_a_port_asked_for_and_free_is_taken(taken_port: int) -> None:
    free = choose_port(0, taken_port, "--port")
    assert choose_port(free, taken_port, "--port") == free
