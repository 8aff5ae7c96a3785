"""Which front ``signalbox up`` chooses, and what it says when it cannot."""

import argparse
from pathlib import Path

import pytest

from signalbox.ops.up.first import name_for
from signalbox.ops.up.options import UpOptions, add_arguments, parsed
from signalbox.ops.up.tyk import find
from signalbox.program.errors import Misconfigured


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the whole path; a test puts programs there."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv("SIGNALBOX_TYK_BIN", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: _in(tmp_path, name))
    return tmp_path


def _in(folder: Path, name: str) -> str | None:
    path = folder / name
    return str(path) if path.exists() else None


def program(folder: Path, name: str, prints: str = "") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)
    return path


def test_without_tyk_the_edge_is_the_front(programs: Path) -> None:
    assert find("auto") is None


def test_tyk_alone_without_redis_leaves_the_edge_in_front(programs: Path) -> None:
    program(programs, "tyk", "v5.14.0")
    assert find("auto") is None


def test_tyk_and_redis_on_the_path_are_the_front_with_their_version(programs: Path) -> None:
    program(programs, "tyk", "v5.14.0")
    program(programs, "redis-server")
    found = find("auto")
    assert found is not None
    assert found.version == "v5.14.0"
    assert find("edge") is None


def test_a_named_tyk_that_does_not_exist_is_refused_by_name(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_TYK_BIN", "/no/such/tyk")
    program(programs, "redis-server")
    with pytest.raises(Misconfigured, match="SIGNALBOX_TYK_BIN=/no/such/tyk"):
        find("auto")


def test_a_tyk_asked_for_without_redis_says_what_to_install(programs: Path) -> None:
    program(programs, "tyk", "v5.14.0")
    with pytest.raises(Misconfigured, match="apt-get install redis-server"):
        find("tyk")


def arguments(*words: str) -> UpOptions:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parsed(parser.parse_args(words))


def test_without_knobs_two_workers_share_one_virtual_device() -> None:
    options = arguments()
    assert (options.workers, options.devices, options.front) == (2, ("cpu:0",), "auto")
    assert options.front_port is None


def test_any_ports_lets_the_system_choose_those_not_given() -> None:
    options = arguments("--ports", "any", "--port", "8081", "--grpc-port", "8501")
    assert (options.front_port, options.grpc_port, options.console_port, options.nats_port) == (8081, 8501, 0, 0)


@pytest.mark.parametrize("words", [("--workers", "-1"), ("--port", "70000"), ("--front", "nginx")])
def test_a_knob_that_cannot_be_is_refused(words: tuple[str, str]) -> None:
    with pytest.raises(SystemExit):
        arguments(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--repository", "/models"), "A repository's URL begins with file://"),
        (("--repository", "/models"), "For a folder: file:///models."),
        (("--repository", "file:///no/such/folder"), "/no/such/folder is no folder on this machine."),
        (("--repository", "s3://"), "A bucket's name has 3 to 222 small letters"),
        (("--uploads", "file:///models"), "name a bucket"),
    ],
)
def test_a_url_that_cannot_be_is_refused_by_its_option_before_anything_starts(
    words: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        arguments(*words)
    assert f"argument {words[0]}: '{words[1]}'" in (printed := capsys.readouterr().err)
    assert said in printed


def test_a_repository_that_is_given_twice_is_one_by_the_url_that_the_console_keeps(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    words = [url, f"{url}/", "s3://bucket/models/"]
    options = arguments(*(word for url in words for word in ("--repository", url)), "--uploads", "s3://bucket/more/")
    assert options.repositories == (url, "s3://bucket/models")
    assert options.uploads == "s3://bucket/more"


@pytest.mark.parametrize(
    ("url", "taken", "name"),
    [
        ("s3://fleet/models", set(), "models"),
        ("s3://fleet/models", {"models"}, "fleet-models"),
        ("s3://fleet/models", {"models", "fleet-models"}, "models-2"),
        ("s3://my.fleet", {"my-fleet"}, "my-fleet-2"),
        ("file:///", {"models"}, "models-2"),
    ],
)
def test_a_repository_of_up_is_called_by_the_end_of_its_url(url: str, taken: set[str], name: str) -> None:
    assert name_for(url, taken) == name
