"""``signalbox host add``: a machine becomes a host over ssh, and keeps its key when it is given another release."""

import argparse
import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from signalbox.ops import cli
from signalbox.ops.host import adding
from signalbox.ops.host.settings import PREFIX, HostSettings
from signalbox.ops.nats.keys import Keys
from signalbox.program import nkeys
from signalbox.program.errors import Misconfigured, NotFound, SignalboxError, Unavailable
from signalbox.program.settings import load
from tests.rigs import wheels
from tests.rigs.sshhost import SshHost

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network namespace and run an sshd")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SshHost]:
    with SshHost(tmp_path / "ssh") as host:
        yield host


def options(folder: Path, wheel: Path, ssh: str, *more: str, target: str = SshHost.target) -> argparse.Namespace:
    """As a person gives them; the machine's files are this one's, below ``folder``."""
    (folder / "units").mkdir(exist_ok=True)
    parser = argparse.ArgumentParser()
    adding.add_arguments(parser)
    where = ("--folder", str(folder / "opt"), "--units", str(folder / "units"), "--user", "root", "--no-start")
    packages = ("--inherit", "--python", sys.executable)
    keys = ("--keys", str(folder / "keys"), "--nats-url", "nats://nats-1:4222")
    return parser.parse_args([target, "--wheel", str(wheel), *keys, *where, *packages, "--ssh", ssh, *more])


def settings(folder: Path) -> dict[str, str]:
    """What the unit's program gets, read by a shell: systemd.exec(5) names its rules of quoting."""
    read = 'set -a; . "$0/host.env"; . "$0/key.env"; env -0'
    etc = str(folder / "opt/etc")
    said = subprocess.run(["env", "-i", "sh", "-c", read, etc], capture_output=True, text=True, check=True, timeout=60)
    return dict(line.split("=", 1) for line in said.stdout.split("\0") if line.startswith("SIGNALBOX_"))


def test_a_machine_becomes_a_host_and_keeps_its_key(
    machine: SshHost, wheel: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = Keys(tmp_path / "keys")
    keys.top_up(2)
    first, second = keys.all()
    told = ("--set", 'SIGNALBOX_HOST_DEVICES=cpu:0="a $b`c\\', "--set", "SIGNALBOX_LOG_LEVEL=DEBUG")
    assert adding.run(options(tmp_path, wheel, machine.ssh, *told)) == 0
    assert capfd.readouterr().out == f"root@gpu-1 is a host, with the key {first.name}.\n"

    etc = tmp_path / "opt/etc"
    assert {path.name for path in etc.iterdir()} == {"host.env", "key.env", "nats_seed"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in etc.iterdir()} == {0o600}
    assert stat.S_IMODE(etc.stat().st_mode) == 0o700
    given = settings(tmp_path)
    assert given["SIGNALBOX_NATS_USER"] == first.name
    assert given["SIGNALBOX_HOST_DEVICES"] == 'cpu:0="a $b`c\\'
    assert nkeys.public(Path(given["SIGNALBOX_NATS_SEED_FILE"]).read_text().strip()) == first.public

    assert [(key.name, key.host) for key in keys.all() if not key.is_free] == [(first.name, "root@gpu-1")]
    assert sorted(path.suffix for path in (tmp_path / "keys").iterdir()) == [".pub", ".pub", ".seed"]

    program = tmp_path / "opt/current/bin/signalbox"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, cwd="/")
    assert said.stdout.startswith("signalbox ")
    before = program.resolve()
    text = given["SIGNALBOX_HOST_WORKER"]
    assert "-m workers" in text
    asks = text.replace("-m workers", '-c "import sys; print(sys.prefix, sys.argv[1])"')
    said = subprocess.run(
        [*shlex.split(asks), "--list"], capture_output=True, text=True, check=True, cwd="/", timeout=60
    )
    assert said.stdout == f"{before.parents[1]} --list\n"  # the release itself, not the link to it

    assert (tmp_path / "units" / adding.UNIT).read_text() == adding.unit(f"{tmp_path}/opt", "root")

    # A release that cannot be installed changes nothing, and the pool loses no key; the same again keeps the key.
    other = tmp_path / wheel.name
    other.write_bytes(b"no wheel")
    with pytest.raises(Unavailable):
        adding.run(options(tmp_path, other, machine.ssh, "--new-key"))
    assert program.resolve() == before
    assert [key.is_free for key in keys.all()] == [False, True]
    assert adding.run(options(tmp_path, wheel, machine.ssh)) == 0
    assert f"with the key {first.name}." in capfd.readouterr().out
    assert [key.is_free for key in keys.all()] == [False, True]
    assert "SIGNALBOX_HOST_DEVICES" not in settings(tmp_path)

    assert adding.run(options(tmp_path, wheel, machine.ssh, "--new-key")) == 0
    assert f"It has had {first.name}: signalbox nats-users --revoke {first.name}" in capfd.readouterr().out
    assert settings(tmp_path)["SIGNALBOX_NATS_USER"] == second.name
    assert adding.run(options(tmp_path, wheel, machine.ssh)) == 0  # it needs no free key
    with pytest.raises(NotFound, match="no free key"):
        adding.run(options(tmp_path, wheel, machine.ssh, "--new-key"))

    keys.revoke([first.name, second.name])
    keys.top_up(1)
    with pytest.raises(Misconfigured, match=f"has the key {second.name}, which is revoked"):
        adding.run(options(tmp_path, wheel, machine.ssh))
    (third,) = keys.all()
    assert third.is_free
    assert adding.run(options(tmp_path, wheel, machine.ssh, "--new-key")) == 0
    (tmp_path / "opt/etc/nats_seed").unlink()
    with pytest.raises(Unavailable):
        adding.run(options(tmp_path, wheel, machine.ssh))
    assert "it has no key any more" in capfd.readouterr().err


def test_a_machine_without_systemd_or_a_new_python_is_refused_and_gets_no_key(
    machine: SshHost, wheel: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = Keys(tmp_path / "keys")
    keys.top_up(1)
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for change, said in (
        ({"python": str(old)}, "is not Python 3.11"),
        ({"no_start": False}, "systemd does not run here"),
    ):
        arguments = options(tmp_path, wheel, machine.ssh)
        for name, value in change.items():
            setattr(arguments, name, value)
        with pytest.raises(Unavailable, match="root@gpu-1 is not set up as a host"):
            adding.run(arguments)
        assert said in capfd.readouterr().err
    assert [key.is_free for key in keys.all()] == [True]
    assert not (tmp_path / "opt").exists()


def test_it_is_an_act_of_the_host_s_command(tmp_path: Path) -> None:
    words = ["--wheel", "w", "--keys", "k", "--nats-url", "nats://n:1"]
    added = cli.parser_of("host").parse_args(["host", "add", "root@gpu-1", *words])
    assert (added.act, added.target, added.folder) == (adding.run, "root@gpu-1", adding.FOLDER)
    assert cli.parser_of("host").parse_args(["host", "--device", "cpu:0"]).act is not adding.run


SYSTEMCTL = """\
#!/bin/sh
# Notes what it is told, in a word; a unit is active once it was started.
cd "$(dirname "$0")/.."
echo "$1" >>told
case "$1" in start) : >active ;; is-active) [ -e active ] || exit 3 ;; esac
"""


def test_the_unit_is_started_and_another_release_replaces_workers_one_by_one(
    wheel: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Keys(tmp_path / "keys").top_up(1)
    commands = tmp_path / "systemd/bin"
    commands.mkdir(parents=True)
    (commands / "systemctl").write_text(SYSTEMCTL)
    (commands / "systemctl").chmod(0o755)
    told = commands.parent / "told"
    with SshHost(tmp_path / "ssh", commands=commands, has_systemd=True) as machine:

        def add(release: Path, *more: str) -> list[str]:
            arguments = options(tmp_path, release, machine.ssh, *more)
            arguments.no_start = False
            told.unlink(missing_ok=True)
            assert adding.run(arguments) == 0
            return told.read_text().split()

        assert add(wheel) == ["daemon-reload", "enable", "is-active", "start", "is-active"]
        first = (tmp_path / "opt/current").resolve()
        other = tmp_path / wheel.name
        other.write_bytes(wheel.read_bytes() + b"\0")
        assert add(other) == ["daemon-reload", "enable", "is-active", "reload", "is-active"]
        assert (tmp_path / "opt/current").resolve() != first
        assert first.exists()  # its workers run until their successors do
        capfd.readouterr()
        assert add(other, "--set", "SIGNALBOX_LOG_LEVEL=DEBUG") == ["daemon-reload", "enable", "is-active", "is-active"]
        assert "systemctl restart signalbox-host.service" in capfd.readouterr().err


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    program = tmp_path / "current/bin/signalbox"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    unit = tmp_path / adding.UNIT
    unit.write_text(adding.unit(str(tmp_path), "root"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"ExecStart={program} host\n" in unit.read_text()
    assert adding.FOLDER not in unit.read_text()
    delivered = Path(__file__).parents[3] / "deploy/systemd" / adding.UNIT
    assert delivered.read_text() == adding.unit()


@pytest.mark.parametrize(
    ("ssh", "is_unclear"),
    [
        ("false", False),
        ("/no/such/ssh", False),
        ("sh -c 'exit 255'", False),  # reads nothing: nobody was reached
        ("sh -c 'cat >/dev/null; exit 255'", True),
        ("sh -c 'cat >/dev/null; exit 1'", False),
    ],
)
def test_a_key_goes_back_to_the_pool_unless_a_machine_may_have_it(
    ssh: str, is_unclear: bool, wheel: Path, tmp_path: Path
) -> None:
    keys = Keys(tmp_path / "keys")
    keys.top_up(1)
    with pytest.raises(SignalboxError) as refused:
        adding.run(options(tmp_path, wheel, ssh))
    (key,) = keys.all()
    assert key.is_free is not is_unclear
    assert ("given to no other host" in refused.value.public_message) is is_unclear


@pytest.mark.parametrize(
    "words",
    [
        ("--set", "PATH=/tmp"),
        ("--set", "SIGNALBOX_X"),
        ("--set", "SIGNALBOX_X=a\nb"),
        ("--folder", "relative"),
        ("--folder", "/a b"),
        ("--ca", "/no/such/file"),
        ("--metrics", "9100"),
        ("--metrics", "gpu-1:9100"),
        ("--metrics", "10.0.0.21:65520"),
    ],
)
def test_what_would_not_reach_the_host_as_it_was_meant_is_refused_before_a_key_is_taken(
    words: tuple[str, ...], wheel: Path, tmp_path: Path
) -> None:
    with pytest.raises(Misconfigured):  # and not that there is no key
        adding.run(options(tmp_path, wheel, "false", *words))


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((), {}),
        (("--metrics", "10.0.0.21:9100"), {"SIGNALBOX_METRICS_HOST": "10.0.0.21", "SIGNALBOX_METRICS_PORT": "9100"}),
        (("--metrics", "[fd00::1]:9200"), {"SIGNALBOX_METRICS_HOST": "fd00::1", "SIGNALBOX_METRICS_PORT": "9200"}),
    ],
)
def test_metrics_of_a_host_are_served_where_its_command_says_and_else_nowhere(
    words: tuple[str, ...], wanted: dict[str, str], wheel: Path, tmp_path: Path
) -> None:
    lines = adding._environment(options(tmp_path, wheel, "ssh", *words)).splitlines()
    given = {name: json.loads(text) for name, text in (line.split("=", 1) for line in lines) if "METRICS" in name}
    assert given == wanted
    made = load(HostSettings, PREFIX, given)
    assert (made.metrics_host, str(made.metrics_port)) == (
        wanted.get("SIGNALBOX_METRICS_HOST", "127.0.0.1"),
        wanted.get("SIGNALBOX_METRICS_PORT", "0"),
    )
