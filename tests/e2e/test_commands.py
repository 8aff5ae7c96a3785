"""The commands of operators and callers on a whole stack, as they are typed in its folder."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from signalbox.ops import cli
from signalbox.ops.http import Rest
from tests.e2e.upprocess import EDGE, ROOT, Up
from tests.rigs import lightrunner, lightup, models

NAME: Final = "rolling_half"
"""The toy engine keeps versions of this one apart."""

pytestmark = pytest.mark.timeout(400)


class Said(NamedTuple):
    status: int
    out: str
    err: str


Typed = Callable[..., Said]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that ``make up`` runs in."""
    path = tmp_path_factory.mktemp("here")
    for number in ("1", "2"):
        saved = path / "exported" / number
        shutil.copytree(models.half_plus_two(), saved)
        (saved / lightrunner.KIND).write_text("half")
    up = Up(path / ".signalbox", *EDGE, "--no-demo", program=lightup.PROGRAM)
    try:
        up.wait_until_up()
        yield path
    finally:
        if up.process.poll() is None:
            up.end(signal.SIGTERM)


@pytest.fixture(scope="module")
def key(folder: Path) -> str:
    doc = json.loads((folder / ".signalbox" / "up.json").read_text())
    token = (folder / ".signalbox" / "secrets" / "operator_token").read_text()
    with Rest(doc["console"], token) as console:
        scopes = ["jobs:submit", "jobs:read", "jobs:cancel", "jobs:urgent"]
        return str(console.ask("POST", "/api/keys", {"name": "shell", "scopes": scopes})["key"])


@pytest.fixture
def typed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Typed:
    """Type a command in the stack's folder; what it says. given: its standard input."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(*words: str, given: bytes = b"") -> Said:
        capfdbinary.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        status = cli.main(words)
        out, err = capfdbinary.readouterr()
        return Said(status, out.decode(errors="replace"), err.decode())

    return run


@pytest.fixture
def caller(typed: Typed, folder: Path, key: str) -> Typed:
    """The same for who has logged in to the front with a key."""
    front = json.loads((folder / ".signalbox" / "up.json").read_text())["front"]
    said = typed("login", front, "--profile", "shell", given=f"{key}\n".encode())
    assert (said.status, "the key may call" in said.err) == (0, True), said

    def run(*words: str, given: bytes = b"") -> Said:
        return typed(*words, "--profile", "shell", given=given)

    return run


@pytest.fixture(scope="module")
def model(folder: Path) -> str:
    """Two versions, pushed by the command."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        assert cli.main(["models", "push", NAME, "exported/1", "--description", "x/2 + 2"]) == 0
        assert cli.main(["models", "push", NAME, "exported/2"]) == 0
    finally:
        os.chdir(here)
    return NAME


def test_a_pushed_model_is_listed_shown_and_answers(caller: Typed, typed: Typed, model: str) -> None:
    said = typed("models", "list")
    assert said.out.splitlines()[0].split() == ["MODEL", "SERVES", "VERSIONS", "LABELS", "STATE", "REPOSITORY"]
    (row,) = [line for line in said.out.splitlines() if line.startswith(f"{NAME} ")]
    assert "2, 1" in row
    assert json.loads(typed("models", "list", NAME, "--json").out)[0]["name"] == NAME
    shown = typed("models", "show", NAME).out
    assert "x/2 + 2" in shown
    assert "saved_model.pb" in typed("models", "show", NAME, "1").out
    said = caller("predict", NAME, "-i", "[1.0, 2.0, 5.0]")
    assert (said.status, json.loads(said.out)) == (0, {"predictions": [2.5, 3.0, 4.5]}), said


def test_an_archive_on_standard_input_is_pushed_and_a_folder_of_nothing_is_refused(typed: Typed, folder: Path) -> None:
    packed = shutil.make_archive(str(folder / "packed"), "gztar", folder / "exported" / "1")
    said = typed("models", "push", "piped", "-", "--json", given=Path(packed).read_bytes())
    assert (said.status, json.loads(said.out)["number"]) == (0, 1), said
    with pytest.raises(SystemExit):
        typed("models", "push")
    said = typed("models", "push", NAME, "exported")
    assert (said.status, "has no saved_model.pb" in said.err) == (2, True)


def test_labels_and_the_default_are_moved_and_moved_back(typed: Typed, model: str) -> None:
    assert typed("models", "label", model, "stable", "1").status == 0
    said = typed("models", "rollback", model, "--reason", "too slow")
    assert said.out.splitlines()[0] == (
        f"{NAME}: requests without a version get version 1; before it was the newest version that is served."
    )
    back = said.out.splitlines()[1].partition(": signalbox ")[2].split()
    assert typed(*back).status == 0
    doc = json.loads(typed("models", "show", model, "--json").out)
    assert (doc["default_version"], doc["serving_version"], doc["labels"]) == (None, 2, {"stable": 1})
    said = typed("models", "rollback", model, "--label", "stable")
    assert (said.status, "no version below 1" in said.err) == (2, True)
    assert typed("models", "label", model, "stable", "--remove").status == 0


def test_what_is_deleted_is_brought_back_by_the_command_that_it_says(typed: Typed, model: str) -> None:
    said = typed("models", "delete", model, "1")
    assert said.status == 0, said
    assert f"version 1 of {NAME} is deleted. Until 2" in said.out
    assert [line.split()[:3] for line in typed("models", "list", "--deleted").out.splitlines()[1:]] == [
        ["version", NAME, "1"]
    ]
    undo = said.out.strip().partition(": signalbox ")[2].split()
    assert typed(*undo).out == f"version 1 of {NAME} is back, as it was.\n"
    assert typed("models", "delete", model, "9").status == 2


def test_a_pin_is_set_and_taken_away(typed: Typed, model: str) -> None:
    assert "stays in memory: version 2" in typed("models", "pin", model, "2").out
    assert "may leave memory" in typed("models", "pin", model, "--off").out


def test_replicas_follow_the_load_and_the_command_that_is_said_takes_it_back(typed: Typed, model: str) -> None:
    def settings() -> tuple[Any, ...]:
        doc = json.loads(typed("models", "show", model, "--json").out)
        return tuple(doc[name] for name in ("autoscale", "autoscale_min", "autoscale_max", "queue_backlog", "replicas"))

    def take_back(said: Said) -> None:
        assert said.status == 0, said
        back = said.out.splitlines()[-1].partition(": signalbox ")[2].split()
        assert typed(*back).status == 0

    said = typed("models", "autoscale", model, "--min", "1", "--max", "2", "--backlog", "5", "--reason", "nightly")
    assert said.out.splitlines()[0] == (
        f"{NAME}: 1 to 2 replicas by its load, 5 waiting jobs each; before: 1 replica by hand."
    )
    assert settings()[:4] == (True, 1, 2, 5.0)
    take_back(typed("models", "autoscale", model, "--max", "3", "--backlog", "0", "--wait", "30"))
    assert settings()[:4] == (True, 1, 2, 5.0)
    take_back(typed("models", "autoscale", model, "--off"))
    stopped = typed("models", "autoscale", model, "--replicas", "0")
    assert "set to 0 by hand" in stopped.out
    take_back(stopped)
    assert settings() == (True, 1, 2, 5.0, 1)
    take_back(said)
    assert settings() == (False, 1, 2, 5.0, 1)
    assert typed("models", "autoscale", model, "--min", "4").status == 2
    said = typed("models", "autoscale", model, "--off", "--max", "2")
    assert (said.status, "--off takes none" in said.err) == (2, True)
    with pytest.raises(SystemExit):
        typed("models", "autoscale", model, "--backlog", "nan")


def test_arrays_are_answered_as_arrays(caller: Typed, model: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([1.0, 2.0, 5.0], np.float32))
    into = tmp_path / "y.npz"
    for given in (f"x={tmp_path}/x.npy", f"{tmp_path}/x.npy"):
        assert caller("predict", model, "-i", given, "-o", str(into)).status == 0
        with np.load(into) as found:
            assert found["y"].tolist() == [2.5, 3.0, 4.5]
    said = caller("predict", model, "-i", "-", "--json", given=(tmp_path / "x.npy").read_bytes())
    assert json.loads(said.out) == {"y": [2.5, 3.0, 4.5]}


def test_a_job_is_submitted_followed_and_its_result_is_saved(caller: Typed, model: str, tmp_path: Path) -> None:
    job = caller("submit", model, "-i", "[1.0, 2.0, 5.0]").out.strip()
    into = tmp_path / "y.npz"
    assert caller("result", job, "-o", str(into)).status == 0
    with np.load(into) as found:
        assert [one.tolist() for one in found.values()] == [[2.5, 3.0, 4.5]]
    assert json.loads(caller("jobs", "show", job, "--json").out)["state"] == "succeeded"
    said = caller("submit", model, "-i", "[1.0]", "--wait")
    assert said.status == 0, said


def test_refusals_name_cause_and_mend(caller: Typed, typed: Typed, model: str, folder: Path) -> None:
    said = caller("predict", "nothing", "-i", "[1.0]")
    assert (said.status, "Traceback" in said.err, "nothing" in said.err) == (2, False, True)
    said = caller("predict", model)
    assert (said.status, "--input" in said.err) == (2, True)
    said = typed("predict", model, "-i", "[1.0]")
    assert (said.status, "signalbox login" in said.err) == (2, True), "make up was started without a key"
    said = typed("login", "http://127.0.0.1:1", given=b"key\n")
    assert (said.status, "127.0.0.1:1" in said.err) == (2, True)
    token = folder / "token"
    token.write_text("sbo_none")
    console = json.loads((folder / ".signalbox" / "up.json").read_text())["console"]
    said = typed("models", "list", "--console", console, "--token-file", str(token))
    assert (said.status, "is of no use there" in said.err) == (2, True)


def test_a_console_is_kept_beside_the_front_of_a_profile(caller: Typed, typed: Typed, folder: Path) -> None:
    doc: dict[str, Any] = json.loads((folder / ".signalbox" / "up.json").read_text())
    token = (folder / ".signalbox" / "secrets" / "operator_token").read_bytes()
    assert typed("login", "--console", doc["console"], "--profile", "shell", given=token).status == 0
    assert caller("models", "list").status == 0
    listed = typed("login", "--list").out
    assert (doc["front"] in listed, doc["console"] in listed, "sb" in listed.replace("signalbox", "")) == (
        True,
        True,
        False,
    )
    assert typed("login", "--forget", "--profile", "shell").status == 0
    assert "no profile" in typed("login", "--list").out


def test_jobs_are_listed_by_what_they_were_submitted_with(caller: Typed, model: str) -> None:
    lines = b'[1.0]\n{"instances": [2.0], "tags": ["other"]}\n{"instances": [3.0], "model": "nothing"}\n'
    said = caller("submit", model, "--many", "-", "--tag", "run:7", "--wait", given=lines)
    assert said.status == 1, said
    first, other, refused = said.out.split()
    assert (refused, "job 3 was refused: " in said.err) == ("-", True)
    said = _listed(caller, "--tag", "run:7", "--state", "succeeded")
    assert (first in said.out, other in said.out, "run:7" in said.out) == (True, False, True)
    assert caller("jobs", "list", "--tag", "run:7", "--ids").out == f"{first}\n"
    (doc,) = json.loads(caller("jobs", "list", "--tag", "other", "--since", "1h", "--json").out)
    assert (doc["id"], doc["model"]) == (other, NAME)
    assert caller("jobs", "list", "--state", "failed", "--model", "nothing").out == "no job\n"


def test_jobs_are_changed_cancelled_retried_and_deleted(caller: Typed, model: str) -> None:
    later = caller("submit", model, "-i", "[1.0]", "--not-before", "1h", "--tag", "later").out.strip()
    shown = caller("jobs", "change", later, "--priority", "hi", "--json")
    assert (shown.status, json.loads(shown.out)["priority"]) == (0, "hi"), shown
    assert caller("jobs", "delete", later).status == 2, "it has not ended"
    said = caller("jobs", "cancel", "-", given=f"{later}\n".encode())
    assert (said.status, said.out) == (0, f"{later} cancelled\n"), said
    assert caller("result", later).status == 1
    again = caller("jobs", "retry", later)
    assert (again.status, "its input was not kept" in again.err) == (2, True), again
    ended = caller("submit", model, "-i", "[1.0]", "--wait").out.strip()
    said = caller("jobs", "retry", later, ended, "--json")
    assert (said.status, json.loads(said.out)["refused"]) == (1, 2), said
    said = caller("jobs", "delete", later, ended)
    assert (said.status, said.out) == (0, "2 deleted, 0 refused\n"), said
    said = caller("jobs", "cancel")
    assert (said.status, "--all" in said.err) == (2, True)
    assert caller("jobs", "cancel", "-").out == "0 cancelled, 0 refused\n"


def test_a_jobs_events_are_printed_until_it_has_ended(caller: Typed, model: str) -> None:
    job = caller("submit", model, "-i", "[1.0]").out.strip()
    said = caller("events", job, "--json")
    assert said.status == 0, said
    assert json.loads(said.out.splitlines()[-1])["state"] == "succeeded"
    assert "succeeded" in caller("events", job).out.splitlines()[-1]
    assert caller("events", "01976f00-0000-7000-8000-000000000000").status == 2


def _listed(caller: Typed, *words: str) -> Said:
    """A list that has something: the console's rows come a moment after the jobs' ends."""
    while (said := caller("jobs", "list", *words)).out == "no job\n":
        time.sleep(0.1)  # the projector's own pace
    return said


def test_shells_complete_models_by_what_is_there(folder: Path, model: str, tmp_path: Path, key: str) -> None:
    front = json.loads((folder / ".signalbox" / "up.json").read_text())["front"]
    (tmp_path / "key").write_text(key)
    for line in ("signalbox models show roll", f"signalbox predict --front {front} --key-file {tmp_path}/key roll"):
        told = tmp_path / "told"
        asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "IFS": "\n", "_ARGCOMPLETE": "1"}
        env = {**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(told), "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-m", "signalbox"], cwd=folder, env=env, capture_output=True, check=True)
        assert told.read_text().split() == [model]
