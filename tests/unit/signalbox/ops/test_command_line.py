"""The command line itself: help, completion, profiles, tables, progress, and what it imports."""

import argparse
import io
import json
import os
import pty
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from signalbox.ops import cli, output, profiles
from signalbox.ops.profiles import Profile, Profiles
from signalbox.program.errors import Misconfigured

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "cli.md").read_text()
CALLERS = ("predict", "submit", "jobs", "events", "result", "login", "models", "queues")
PROGRAM = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2:]:
            raise ModuleNotFoundError(f"{name} is no part of a base install", name=name)

sys.meta_path.insert(0, Blocked())
from signalbox.ops.cli import main
sys.exit(main([sys.argv[1], "--help"]))
"""


def parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Those of the acts, and the parser itself where it has none."""
    acts = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [below for action in acts for one in action.choices.values() for below in parsers(one)] or [parser]


def commands(name: str) -> list[argparse.ArgumentParser]:
    """A command, or its acts."""
    (action,) = [each for each in cli.parser_of(name)._actions if isinstance(each, argparse._SubParsersAction)]
    return parsers(action.choices[name])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, with an empty home."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def place(*words: str) -> Profile:
    """The front that a command with these options goes to."""
    parser = argparse.ArgumentParser()
    profiles.add_front_options(parser)
    return profiles.front_of(parser.parse_args(words))


@pytest.mark.parametrize("name", CALLERS)
def test_each_command_teaches_by_examples_that_it_takes(name: str) -> None:
    for parser in commands(name):
        text = parser.format_help()
        examples = re.findall(rf"^  (?:.*[|(] ?)?(signalbox {name}\b[^|>)#&\n]*)", text, re.MULTILINE)
        assert examples, parser.prog
        for example in examples:
            words = re.findall(r"'[^']*'|\S+", example)[1:]
            cli.parser_of(name).parse_args([word.strip("'") for word in words])


@pytest.mark.parametrize("name", CALLERS)
def test_the_page_has_every_command_and_act_and_no_option_that_there_is_not(name: str) -> None:
    for parser in commands(name):
        assert f"`{parser.prog}" in PAGE or f"\n{parser.prog} " in PAGE, parser.prog
    examples = re.findall(rf"^(?:.*[|(] ?)?(signalbox {name}\b[^|>)#&\n]*)", PAGE, re.MULTILINE)
    assert examples
    for example in examples:
        words = re.findall(r"'[^']*'|\S+", example)[1:]
        cli.parser_of(name).parse_args([word.strip("'") for word in words])


def test_a_base_install_is_enough_for_callers_and_operators() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(one.startswith("nats-py") for one in extras["program"])
    blocked = ("msgspec", "nats", "structlog", "prometheus_client", "argcomplete", "orjson", "django", "grpc")
    for name, is_enough in (*((name, True) for name in CALLERS), ("up", False), ("completion", False)):
        command = [sys.executable, "-c", PROGRAM, name, *blocked]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == is_enough, done.stderr
        assert is_enough or (done.returncode, "pip install" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("signalbox ev", "events"),
        ("signalbox models ro", "rollback"),
        ("signalbox jobs list --st", "--state"),
        ("signalbox jobs list --state runn", "running"),
    ],
)
def test_shells_are_told_how_a_line_may_go_on(line: str, expected: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    env = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(told),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
        "IFS": "\n",
    }
    done = subprocess.run([sys.executable, "-m", "signalbox"], cwd=ROOT, env=env, capture_output=True, check=False)
    assert told.read_text().split() == [expected], done.stderr


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("completion bash > /dev/full", 2, "signalbox: the output cannot be written: No space left on device.\n"),
        ("completion bash >&-", 0, ""),
        ("jobs cancel - <&- --data nowhere", 2, "No `make up` runs in nowhere"),
        ("predict m -i - <&- --front http://127.0.0.1:9 --key-file {key}", 2, "standard input is neither"),
    ],
)
def test_closed_and_full_streams_are_no_crash(line: str, status: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    command = f"{sys.executable} -m signalbox {line.format(key=tmp_path / 'key')}"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (status, False)
    assert said in done.stderr


def test_a_limit_below_zero_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    words = ["jobs", "list", "--limit", "-3", "--front", "http://127.0.0.1:9", "--key-file", str(tmp_path / "key")]
    assert cli.main(words) == 2
    assert "--limit must be 0" in capsys.readouterr().err


def test_each_shell_has_its_script(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert cli.main(["completion", shell]) == 0
        assert "signalbox" in capsys.readouterr().out


def test_profiles_are_kept_for_their_owner_alone(here: Path) -> None:
    given = Profiles("prod", {"prod": Profile(("https://a", "https://b"), "k", "https://c", "t")})
    profiles.save(given)
    assert stat.S_IMODE(profiles.path().stat().st_mode) == 0o600
    assert profiles.load() == given
    assert place() == given.by_name["prod"]
    profiles.path().chmod(0o640)
    with pytest.raises(Misconfigured, match="chmod 600"):
        profiles.load()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"profiles": 3, "chosen": ""}', '{"profiles": {"a": 3}, "chosen": "a"}']
)
def test_a_file_that_is_none_of_profiles_is_refused(here: Path, text: str) -> None:
    profiles.save(Profiles("a", {}))
    profiles.path().write_text(text)
    with pytest.raises(Misconfigured, match="is no file of profiles"):
        profiles.load()


def test_what_is_named_comes_first_then_what_runs_here_then_the_last_login(here: Path) -> None:
    with pytest.raises(Misconfigured, match="signalbox login URL"):
        place()
    profiles.save(Profiles("kept", {"kept": Profile(("http://kept",), "k"), "other": Profile(("http://other",), "o")}))
    assert place().fronts == ("http://kept",)
    (here / ".signalbox").mkdir()
    up = {"front": "http://here", "console": "http://console", "api_key": "h"}
    (here / ".signalbox" / "up.json").write_text(json.dumps(up))
    assert place() == Profile(("http://here",), "h", "http://console", "")
    assert place("--profile", "other").fronts == ("http://other",)
    (here / "key").write_text("given\n")
    named = place("--front", "http://1", "--front", "http://2", "--key-file", "key")
    assert named == Profile(("http://1", "http://2"), "given")
    for words, why in (
        (("--profile", "none"), "there are: kept, other"),
        (("--front", "http://1"), "--key-file"),
        (("--data", "elsewhere"), "No `make up` runs in elsewhere"),
    ):
        with pytest.raises(Misconfigured, match=why):
            place(*words)


def test_rows_stand_in_columns_and_no_value_breaks_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_table(("A", "LONG"), [("x", ["1", "2"]), ("two\nlines", None)])
    assert capsys.readouterr().out == "A          LONG\nx          1, 2\ntwo lines\n"
    output.emit_table(("A",), [], "no thing")
    assert capsys.readouterr().out == "no thing\n"
    output.emit_fields([("a", 1), ("long", True), ("empty", "")])
    assert capsys.readouterr().out == "a     1\nlong  yes\n"


def test_no_text_of_a_server_tells_the_terminal_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "it failed\x1b]0;owned\x07\x9b2J\u202e"
    output.emit_table(("A",), [(hostile,), ([hostile],)])
    output.emit_fields([("why", hostile)])
    output.note(hostile)
    shown = capsys.readouterr()
    assert not [c for c in shown.out + shown.err if not (c.isprintable() or c == "\n")]
    assert shown.err == "it failed\ufffd]0;owned\ufffd\ufffd2J\ufffd\n"


def test_progress_counts_bytes_and_things() -> None:
    bar = output.Progress("sending", 4_000_000, is_bytes=True, to=io.StringIO())
    bar.advance(1_000_000)
    bar.say("slowly")
    assert re.fullmatch(r"sending  \[#{6}\.{18}\]   25%  1 of 4 MB  \d s  slowly", bar.line())
    bar = output.Progress("submitted", 8, to=io.StringIO())
    bar.advance(8)
    assert re.fullmatch(r"submitted  \[#{24}\]  100%  8 of 8  \d s", bar.line())


def test_progress_is_drawn_on_a_terminal_and_its_line_is_taken_away() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "rb", buffering=0) as screen:
        with output.Progress("waiting", to=terminal):
            seen = b""
            while b"waiting" not in seen:
                seen += screen.read(1024)
        while not seen.endswith(b"\r\x1b[2K"):
            seen += screen.read(1024)
    quiet = io.StringIO()
    with output.Progress("waiting", to=quiet):
        pass
    assert quiet.getvalue() == ""


def test_a_command_ends_quietly_where_its_reader_has_read_enough() -> None:
    line = f"{sys.executable} -m signalbox completion bash | :; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")
