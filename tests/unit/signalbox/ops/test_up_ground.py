"""The data folder, and the secrets of ``signalbox up``."""

import logging
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from signalbox.ops import foreground
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program import log
from signalbox.program.errors import Misconfigured


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


def test_a_full_disk_is_refused_with_what_is_free_and_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        total: int = 10**9
        used: int = 10**9
        free: int = 3 * 1024**2

    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage())
    reported = "3 MB free; Signalbox needs 512 MB"
    with pytest.raises(Misconfigured, match=reported), DataDir(tmp_path):
        pass


def test_log_lines_of_the_program_in_the_foreground_go_to_its_file_and_not_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Nothing:
        async def stop(self) -> None:
            log.warning("bus.disconnected", reason="stopping")

    async def work(_: Nothing) -> None:
        log.warning("bus.disconnected", reason="a fault")
        logging.getLogger("nats").error("a library's words")

    assert foreground.run("up", tmp_path, lambda _, __: Nothing(), work) == 0
    printed = capsys.readouterr()
    assert (printed.err, "bus.disconnected" in printed.out) == ("", False)
    assert (tmp_path / "logs" / "up.log").read_text().count("bus.disconnected") == 2


def test_a_secret_is_made_once_kept_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    path = data.secret("pepper")
    text = path.read_text()
    assert len(text) >= 32
    assert data.secret("pepper").read_text() == text
    assert data.secret("other").read_text() != text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_model_folders_have_names_that_a_move_does_not_change(tmp_path: Path) -> None:
    given = tuple(tmp_path / name for name in ("mine", "x/same", "y/same", "models", "no name"))
    listed = (f"file://{tmp_path}/listed", "s3://bucket")
    options = UpOptions(front_port=0, console_port=0, nats_port=0, model_folders=given, repositories=listed)
    stack = UpStack(options, DataDir(tmp_path / "data"), lambda _: None)
    assert tmp_path / "listed" in stack.model_folders()
    assert stack._model_roots() == [f"models={tmp_path}/data/models", f"mine={tmp_path}/mine", *map(str, given[1:])]


def test_the_running_stacks_file_is_private_and_replaced_whole(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.write_json("up.json", {"front": "a"})
    path = data.write_json("up.json", {"front": "b"})
    assert data.read_json("up.json") == {"front": "b"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["up.json"]


def test_a_container_s_output_has_sentences_and_log_and_keeps_nobody_waiting_when_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loud:
        def __init__(self, _: DataDir, say: foreground.Sayer) -> None:
            self.say = say

        async def stop(self) -> None: ...

    async def work(loud: Loud) -> None:
        log.warning("bus.disconnected", reason="a fault")
        for _ in range(2000):
            loud.say("a sentence that nobody reads")

    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as unread:
        with os.fdopen(writer, "w") as output:
            monkeypatch.setattr(sys, "stdout", output)
            assert foreground.run("host", tmp_path, Loud, work, shows_logs=True) == 0
        shown = unread.read()
    assert shown.endswith(b" nobody reads\n")
    assert (tmp_path / "logs" / "host.log").read_text().count("bus.disconnected") == 1
