"""Folders as repositories: what is listed, and where the walk ends."""

import os
from pathlib import Path

import pytest

from signalbox.program.errors import LimitExceeded, Unavailable
from signalbox.repositories import folder
from signalbox.repositories.entry import Entry
from signalbox.repositories.layouts import find


def laid_out(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"12")
    return root


def paths(root: Path) -> list[str]:
    return [entry.path for page in folder.walk(root) for entry in page]


def test_files_are_listed_as_a_store_lists_them(tmp_path: Path) -> None:
    root = laid_out(tmp_path, "b/1/saved_model.pb", "a/2/variables/variables.index", "README")
    (root / "empty").mkdir()
    assert paths(root) == ["README", "a/2/variables/variables.index", "b/1/saved_model.pb"]
    os.utime(root / "README", ns=(1, 7))
    ((entry, *_),) = folder.walk(root)
    assert entry == Entry("README", 2, "7-2")


def test_a_listing_comes_in_pages(tmp_path: Path) -> None:
    root = laid_out(tmp_path, *(f"{number:04}" for number in range(1001)))
    assert [len(page) for page in folder.walk(root)] == [1000, 1]


def test_links_are_followed_within_the_root_and_no_further(tmp_path: Path) -> None:
    root = laid_out(tmp_path / "root", "blobs/1/saved_model.pb")
    laid_out(tmp_path / "beside", "secret")
    laid_out(tmp_path / "root2", "secret")
    (root / "m").symlink_to("blobs")
    (root / "blobs/1/loop").symlink_to(root)
    (root / "blobs/1/itself").symlink_to("itself")
    (root / "out").symlink_to(tmp_path / "beside")
    (root / "next").symlink_to(tmp_path / "root2")
    (root / "file").symlink_to(tmp_path / "beside/secret")
    (root / "up").symlink_to("..")
    (root / "gone").symlink_to("nowhere")
    outside: list[str] = []
    listed = [entry.path for page in folder.walk(root, outside=outside) for entry in page]
    assert listed == ["blobs/1/saved_model.pb", "m/1/saved_model.pb"]
    assert outside == ["file", "next", "out", "up"], "what a person may miss"
    (tmp_path / "link").symlink_to(root)
    assert paths(tmp_path / "link") == ["blobs/1/saved_model.pb", "m/1/saved_model.pb"]


def test_links_that_multiply_end_the_walk(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}").mkdir()
        for name in "ab":
            (tmp_path / f"{number:02}" / name).symlink_to(tmp_path / f"{number + 1:02}")
    with pytest.raises(LimitExceeded):
        list(folder.walk(tmp_path, most=10_000))


def test_what_is_no_file_is_not_listed(tmp_path: Path) -> None:
    os.mkfifo(laid_out(tmp_path, "file") / "pipe")
    assert paths(tmp_path) == ["file"]


def test_names_that_are_no_text_are_refused_by_layouts_and_end_nothing(tmp_path: Path) -> None:
    root = laid_out(tmp_path, "m/1/saved_model.pb", "n/1/saved_model.pb")
    Path(os.fsdecode(os.fsencode(root) + b"/m/1/\xff")).write_bytes(b"")
    found = find((entry for page in folder.walk(root) for entry in page), marker="", name="zoo")
    assert (list(found.models), list(found.refused)) == (["n"], ["m/1"])


def test_a_folder_that_is_away_is_unavailable_and_not_empty(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        paths(tmp_path / "away")
    with pytest.raises(Unavailable, match="Not a directory"):
        paths(laid_out(tmp_path, "file") / "file")


def test_one_file_more_than_are_taken_ends_the_listing(tmp_path: Path) -> None:
    root = laid_out(tmp_path, "a", "b", "c")
    assert len(next(folder.walk(root, most=3))) == 3
    with pytest.raises(LimitExceeded):
        list(folder.walk(root, most=2))
