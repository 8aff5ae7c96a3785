"""What a runner is shown of a version: the files of its folder, nothing a link leads to, nothing others can change."""

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from signalbox.program.errors import ModelError, Unavailable
from workers.runner import layout, savedmodel
from workers.runner import staging as staging_module
from workers.runner.layout import lay_out, real_folder
from workers.runner.staging import Staging


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """A version's folder below a root: only this user may write the graph, others the variables too."""
    home = tmp_path / "models" / "m" / "1"
    (home / "variables").mkdir(parents=True)
    for path, mode in (("saved_model.pb", 0o644), ("variables/data", 0o666)):
        (home / path).write_text(path)
        (home / path).chmod(mode)
    return home


def laid(version: Path, *, is_for_others: bool = False) -> tuple[Path, dict[str, int]]:
    place = version.parents[2] / "place"
    roots = [str(version.parents[1])]
    return place, lay_out(version, place, roots, is_for_others, lambda: False)


def test_what_is_laid_out_has_the_digest_of_what_was_registered(version: Path) -> None:
    place, ways = laid(version)
    assert savedmodel.manifest(place) == savedmodel.manifest(version)
    assert sum(ways.values()) == 2


def test_a_file_that_another_may_write_is_never_linked(version: Path) -> None:
    place, ways = laid(version)
    (version / "variables/data").write_text("changed while it is loaded")
    assert (place / "variables/data").read_text() == "variables/data"
    assert ways in ({"linked": 1, "copied": 1}, {"cloned": 2})


def test_a_file_that_the_runners_user_could_not_read_is_copied_for_it(version: Path) -> None:
    (version / "saved_model.pb").chmod(0o600)
    place, _ = laid(version, is_for_others=True)
    assert (place / "saved_model.pb").stat().st_mode & 0o777 == 0o644
    assert (version / "saved_model.pb").stat().st_mode & 0o777 == 0o600


def test_links_within_a_version_lead_to_the_same_place_in_the_layout(version: Path) -> None:
    (version / "data").symlink_to(version / "variables" / "data")
    (version / "alias").symlink_to("variables")
    place, ways = laid(version)
    assert ways["link within"] == 2
    for link in ("data", "alias/data"):
        assert (place / link).resolve() == (place / "variables" / "data").resolve()
    assert savedmodel.manifest(place) == savedmodel.manifest(version)


@pytest.mark.parametrize("target", ["../../n/1/saved_model.pb", "../../n", "/etc/hostname"])
def test_a_link_out_of_a_version_is_refused_and_nothing_stays(version: Path, target: str) -> None:
    neighbour = version.parents[1] / "n" / "1"
    neighbour.mkdir(parents=True)
    (neighbour / "saved_model.pb").write_text("theirs")
    (version / "link").symlink_to(target)
    with pytest.raises(ModelError, match="leads out of it"):
        laid(version)
    assert not (version.parents[2] / "place").exists()


def test_a_version_that_is_a_link_out_of_the_roots_is_refused(version: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "saved_model.pb").write_text("theirs")
    link = version.with_name("2")
    link.symlink_to(outside)
    with pytest.raises(ModelError, match="SIGNALBOX_WORKER_MODEL_FOLDERS"):
        laid(link)


def test_a_pipe_among_the_files_is_refused_and_not_waited_for(version: Path) -> None:
    os.mkfifo(version / "pipe")
    with pytest.raises(ModelError, match="neither a file nor a folder"):
        laid(version)


def test_a_copy_is_not_begun_where_its_disk_has_no_room(version: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = SimpleNamespace(f_bavail=1, f_frsize=4096)
    monkeypatch.setattr(os, "fstatvfs", lambda _: full)
    monkeypatch.setattr(layout, "_is_cloned", lambda *_: False)
    with pytest.raises(Unavailable, match="SIGNALBOX_WORKER_STAGING_DIR"):
        laid(version)
    assert not (version.parents[2] / "place").exists()


def test_a_disk_that_fills_up_meanwhile_says_the_same(version: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "sendfile", full)
    monkeypatch.setattr(layout, "_is_cloned", lambda *_: False)
    with pytest.raises(Unavailable, match="SIGNALBOX_WORKER_STAGING_DIR"):
        laid(version)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_what_the_worker_has_run_out_of_is_not_the_versions_fault(
    version: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def used_up(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", used_up)
    with pytest.raises(Unavailable, match="SIGNALBOX_WORKER_STAGING_DIR"):
        laid(version)


def test_a_staging_folder_that_is_gone_is_not_the_versions_fault(version: Path, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="SIGNALBOX_WORKER_STAGING_DIR"):
        lay_out(version, tmp_path / "gone" / "place", [], False, lambda: False)


def test_without_a_clone_or_a_link_files_are_copied_whole(version: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_is_cloned", lambda *_: False)
    monkeypatch.setattr(layout, "_is_linked", lambda *_: False)
    (version / "variables/data").write_bytes(os.urandom((16 << 20) + 5))
    place, ways = laid(version)
    assert ways == {"copied": 2}
    assert savedmodel.manifest(place) == savedmodel.manifest(version)


async def test_two_loads_are_never_shown_at_once(version: Path, tmp_path: Path) -> None:
    staging = Staging(tmp_path / "staging")
    staging.make()
    seen: list[int] = []

    async def load() -> None:
        async with staging.staged(version) as place:
            assert (place / "saved_model.pb").exists()
            seen.append(len([path for path in staging.folder.iterdir() if path.is_dir()]))

    await asyncio.gather(*(load() for _ in range(5)))
    assert seen == [1] * 5
    staging.remove()
    assert not list((tmp_path / "staging").iterdir())


async def test_a_load_that_is_cancelled_leaves_nothing(version: Path, tmp_path: Path) -> None:
    staging = Staging(tmp_path / "staging")
    staging.make()
    shown = asyncio.Event()

    async def load() -> None:
        async with staging.staged(version):
            shown.set()
            await asyncio.Event().wait()

    loading = asyncio.create_task(load())
    await shown.wait()
    loading.cancel()
    await asyncio.wait([loading])
    assert [path.name for path in staging.folder.iterdir()] == ["lock"]
    staging.remove()


@pytest.mark.parametrize("files_before", [0, 1, 2])
async def test_a_load_that_is_cancelled_while_it_is_laid_out_leaves_nothing(
    version: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_before: int
) -> None:
    (version / "variables/data").chmod(0o644)  # linked, so that no copy is there to be stopped
    brought: list[object] = []
    cancelled = threading.Event()
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold_at(count: int) -> None:
        if count == files_before:
            loop.call_soon_threadsafe(reached.set)
            cancelled.wait(60)

    def cloned(*files: object) -> bool:
        hold_at(len(brought))
        brought.append(files)
        return False

    def whole(*arguments: Any) -> dict[str, int]:
        ways = lay_out(*arguments)
        hold_at(len(brought))
        return ways

    monkeypatch.setattr(layout, "_is_cloned", cloned)
    monkeypatch.setattr(staging_module, "lay_out", whole)
    staging = Staging(tmp_path / "staging")
    staging.make()
    loading = asyncio.create_task(staging.staged(version).__aenter__())
    await reached.wait()
    loading.cancel()
    await asyncio.wait([loading])
    cancelled.set()
    await asyncio.wait(staging._given_up.values())
    assert [path.name for path in staging.folder.iterdir()] == ["lock"]
    staging.remove()


async def test_a_disk_that_hangs_keeps_one_thread_and_versions_of_others_are_laid_out(
    version: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "others" / "m" / "1"
    shutil.copytree(version, elsewhere)
    hung, pipe = version.parents[1], tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()

    def opened(source: Path, roots: Sequence[str]) -> int:
        if source.is_relative_to(hung):
            loop.call_soon_threadsafe(reading.release)
            pipe.read_bytes()  # for as long as nobody writes
        return real_folder(source, roots)

    monkeypatch.setattr(layout, "real_folder", opened)
    monkeypatch.setattr(staging_module, "_STOP_S", 0.01)
    staging = Staging(tmp_path / "staging", [str(hung), str(elsewhere.parents[1])])
    staging.make()

    async def load(source: Path) -> None:
        async with staging.staged(source) as place:
            assert (place / "saved_model.pb").exists()

    loading = asyncio.create_task(load(version))
    await reading.acquire()
    loading.cancel()
    await asyncio.wait([loading])
    for _ in range(3):
        with pytest.raises(Unavailable, match="does not answer"):
            await asyncio.wait_for(load(version), 60)
    await load(elsewhere)
    threads = [thread for thread in threading.enumerate() if thread.name == "lay out"]
    assert [thread.daemon for thread in threads] == [True]
    monkeypatch.undo()
    left = list(staging._given_up.values())
    pipe.write_bytes(b"")
    await asyncio.wait(left)
    await load(version)
    staging.remove()


def test_a_folder_whose_worker_lives_is_left_alone_and_one_of_a_dead_one_is_not(tmp_path: Path) -> None:
    living, dead = Staging(tmp_path), Staging(tmp_path)
    living.make()
    dead.make()
    (dead.folder / "version").mkdir()
    os.close(dead._lock_fd)  # as its end does
    half_removed = tmp_path / "signalbox-staging-0"
    half_removed.mkdir()
    Staging(tmp_path).make()
    assert living.folder.exists()
    assert not dead.folder.exists()
    assert not half_removed.exists()
    living.remove()


def test_who_enters_the_folder_cannot_list_it(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    staging.make()
    assert staging.folder.stat().st_mode & 0o777 == 0o300
    staging.remove()
