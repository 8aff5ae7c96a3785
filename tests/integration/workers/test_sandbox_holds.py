"""What a confined process cannot do, tried for real; and that a sandbox with a hole refuses to run."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.rigs.guardwords import Words
from tests.rigs.models import half_plus_two
from workers.guard.link import GuardLink, GuardReport
from workers.runner.process import REFUSED
from workers.sandbox import landlock
from workers.sandbox.confine import probe
from workers.sandbox.confinement import Mode, Sandbox
from workers.sandbox.selftest import Layer

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60
IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can become another user")
needs_landlock = pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")
NOBODY = 65534


class Ground(NamedTuple):
    """A model's folder, a file outside that everybody may read, and a folder everybody may write to."""

    models: Path
    canary: Path
    open_folder: Path


@pytest.fixture
def ground() -> Iterator[Ground]:
    """Not below pytest's own folder, which is nobody else's to read."""
    with tempfile.TemporaryDirectory(prefix="signalbox-sandbox-") as folder:
        Path(folder).chmod(0o755)
        yield _laid_out(Path(folder))


def _laid_out(tmp_path: Path) -> Ground:
    made = Ground(tmp_path / "models", tmp_path / "canary", tmp_path / "open")
    made.models.mkdir()
    (made.models / "weights").write_bytes(b"w")
    made.canary.write_text("secret")
    made.open_folder.mkdir()
    made.open_folder.chmod(0o777)
    return made


def run(code: Sequence[str], *, env: dict[str, str] | None = None, **options: Any) -> Any:
    """A Python process; its end."""
    python = options.pop("python", sys.executable)
    paths = os.pathsep.join([str(ROOT), *options.pop("paths", ())])
    return subprocess.run(
        [python, *code],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": paths, **(env or {})},
        **options,
    )


def tried(sandbox: Sandbox, *attempts: str, kind: str = "cpu", **options: Any) -> dict[str, Any]:
    """What the probe reports."""
    ended = run(["-m", "tests.rigs.sandboxprobe", kind, sandbox.argument(), *attempts], **options)
    assert ended.returncode == 0, ended.stderr
    facts: dict[str, Any] = json.loads(ended.stdout)
    return facts


def confined_with(patch: str, sandbox: Sandbox, **options: Any) -> Any:
    """``python -m workers.sandbox`` after a line that takes something away from it."""
    code = f"import sys; {patch}; from workers.sandbox import confine as sandbox; sys.exit(sandbox.main())"
    return run(["-c", code, "--sandbox", sandbox.argument()], **options)


@needs_landlock
def test_files_outside_are_neither_read_nor_changed(ground: Ground) -> None:
    sandbox = Sandbox(model_folders=(str(ground.models),))
    canary, weights = ground.canary, ground.models / "weights"
    facts = tried(
        sandbox,
        f"read={weights}",
        f"listing={ground.models}",
        f"read={canary}",
        f"listing={ground.open_folder}",
        f"write={ground.open_folder}/new",
        f"write={weights}",
        f"write={ground.models}/new",
        f"change={canary}",
        f"cut={canary}",
        f"remove={canary}",
        f"link={canary}",
        "read=/etc/shadow",
        "read=/etc/passwd",
        "write=/dev/shm/new",
        f"write={ROOT}/workers/new.py",
        f"read={ROOT}/pyproject.toml",
        "private=mine",
    )
    assert facts["results"] == [
        "done",
        "done",
        "EACCES",
        "EACCES",
        "EACCES",
        "EACCES",
        "EACCES",
        "EPERM",
        facts["results"][8],
        "EACCES",
        "EACCES",
        "EACCES",
        "EACCES",
        "EACCES",
        "EACCES",
        "EACCES",
        "done",
    ]
    assert facts["results"][8] in {"EACCES", "EPERM"}
    assert canary.read_text() == "secret"
    assert canary.stat().st_mode & 0o777 == 0o644
    assert {Layer.READS, Layer.WRITES} <= set(facts["active"])


@needs_landlock
def test_without_named_folders_reading_is_free_and_writing_is_not(ground: Ground) -> None:
    facts = tried(Sandbox(), f"read={ground.canary}", f"write={ground.open_folder}/new")
    assert facts["results"] == ["done", "EACCES"]
    assert "MODEL_FOLDERS" in facts["missing"][Layer.READS]


def test_there_is_no_network_no_other_process_and_no_way_back(ground: Ground) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        path = str(ground.open_folder / "socket")
        listener.bind(path)
        listener.listen()
        facts = tried(
            Sandbox(),
            "internet=AF_INET",
            "internet=AF_INET6",
            "internet=AF_NETLINK",
            "internet=AF_VSOCK",
            f"unix={path}",
            f"signal_to={os.getpid()}",
            "signal_to=1",
            "signal_to=-1",
            f"memory_of={os.getpid()}",
            "program=/bin/true",
            "child",
            "core",
            "thread",
        )
    *refused, thread = facts["results"]
    assert all(result in {"EPERM", "EACCES", "ValueError"} for result in refused), refused
    assert thread == "done"


def test_system_calls_a_model_has_no_business_with_are_refused() -> None:
    from workers.sandbox.seccomp import NUMBERS, machine

    column = 0 if machine() == "x86_64" else 1
    names = [
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "pidfd_open",
        "mount",
        "unshare",
        "setns",
        "bpf",
        "perf_event_open",
        "keyctl",
        "add_key",
        "userfaultfd",
        "io_uring_setup",
        "kexec_load",
        "init_module",
        "finit_module",
        "delete_module",
        "chroot",
        "pivot_root",
        "setresuid",
        "capset",
        "syslog",
        "shmget",
        "msgget",
        "semget",
        "connect",
        "bind",
        "execveat",
        "open_by_handle_at",
        "flock",
    ]
    facts = tried(Sandbox(), *(f"call={NUMBERS[name][column]},-1,0,0,0,0" for name in names))
    assert dict(zip(names, facts["results"], strict=True)) == dict.fromkeys(names, "EPERM")


def test_the_private_folder_is_bounded_and_gone_with_its_process(tmp_path: Path) -> None:
    facts = tried(Sandbox(), "large=fill", env={"TMPDIR": str(tmp_path)})
    if Layer.MEMORY in facts["missing"]:
        pytest.skip(facts["missing"][Layer.MEMORY])
    assert facts["results"] == ["ENOSPC"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "code",
    [
        ["-c", "from workers.sandbox.confine import probe, Sandbox; probe(Sandbox(), 'cpu')"],
        ["-m", "workers.inspect", str(half_plus_two())],
    ],
    ids=["probe", "inspect"],
)
def test_whoever_starts_a_confined_process_removes_its_private_folder(tmp_path: Path, code: list[str]) -> None:
    ended = run(code, env={"TMPDIR": str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    assert not list(tmp_path.iterdir())


def test_a_private_folder_that_a_kill_left_goes_at_the_next_start_and_no_living_one(tmp_path: Path) -> None:
    (tmp_path / "signalbox-runner-link").symlink_to(tmp_path)
    code = "from workers.sandbox import scratch; print(scratch.make(None), flush=True); input()"
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    made = []
    with ExitStack() as stack:
        for _ in range(2):
            process = stack.enter_context(
                subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            made.append((process, Path(process.stdout.readline().strip())))
        (killed, left), (_, living) = made
        (left / "file").touch()
        killed.kill()
        killed.wait()
        assert left.exists()
        assert run(["-m", "workers.sandbox"], env={"TMPDIR": str(tmp_path)}).returncode == 0
        assert not left.exists()
        assert living.exists()


def test_a_private_folder_is_had_while_others_clear_away_those_that_nobody_holds(tmp_path: Path) -> None:
    code = """if True:
        import threading
        from workers.sandbox import scratch
        ended = threading.Event()
        def clear():
            while not ended.is_set():
                scratch.sweep(None)
        others = [threading.Thread(target=clear) for _ in range(4)]
        for each in others: each.start()
        try:
            print(all(scratch.make(None).exists() for _ in range(300)))
        finally:
            ended.set()
    """
    ended = run(["-c", code], env={"TMPDIR": str(tmp_path)})
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_a_gpus_runner_may_start_programs_and_still_has_no_network() -> None:
    facts = tried(
        Sandbox(),
        "program=/bin/true",
        "child",
        "internet=AF_INET",
        "internet=AF_NETLINK",
        f"signal_to={os.getppid()}",
        f"memory_of={os.getpid()}",
        "write=/tmp/new",
        kind="nvidia",
    )
    assert facts["results"][:2] == ["done", "done"]
    assert all(result in {"EPERM", "EACCES"} for result in facts["results"][2:]), facts["results"]


@needs_landlock
def test_cuda_may_name_its_threads_and_a_virtual_devices_runner_may_not() -> None:
    """It empties the file as it opens it; refused, cuInit fails with 304 (seen on an H200, Linux 6.18)."""
    assert tried(Sandbox(), "write=/proc/self/comm", kind="nvidia")["results"] == ["done"]
    assert tried(Sandbox(), "write=/proc/self/comm")["results"] == ["EACCES"]


@needs_root
def test_a_user_of_its_own_has_no_groups_and_does_not_come_back(ground: Ground) -> None:
    ground.canary.chmod(0o600)
    facts = tried(Sandbox(user="nobody"), f"read={ground.canary}", f"memory_of={os.getpid()}", "private=mine")
    assert (facts["uid"], facts["groups"]) == (NOBODY, [])
    assert facts["results"] == ["EACCES", "EACCES", "done"]
    assert {Layer.USER, Layer.PARENT, Layer.RIGHTS} <= set(facts["active"])


@needs_root
@pytest.mark.parametrize("name", ["root", "0", "no-such-user"])
def test_a_wrong_user_is_refused(name: str) -> None:
    ended = confined_with("pass", Sandbox(user=name))
    assert ended.returncode == 1
    assert "SIGNALBOX_WORKER_RUNNER_USER" in ended.stderr


@pytest.fixture
def ordinary() -> Iterator[dict[str, Any]]:
    """How to run a process as an ordinary user: this one, or another where we are root."""
    options: dict[str, Any] = {"paths": [str(Path(msgspec.__file__).parent.parent)]}
    if IS_ROOT:
        options |= {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    for python in (sys.executable, "/usr/bin/python3.11", "/usr/bin/python3"):
        try:
            if run(["-c", "import workers.sandbox.confine"], python=python, **options).returncode == 0:
                yield options | {"python": python}
                return
        except OSError:
            continue
    pytest.skip("no Python with our dependencies that an ordinary user may run")


@needs_landlock
def test_an_ordinary_users_runner_is_confined_too(ground: Ground, ordinary: dict[str, Any]) -> None:
    facts = tried(
        Sandbox(model_folders=(str(ground.models),)),
        f"read={ground.models}/weights",
        f"read={ground.canary}",
        f"write={ground.open_folder}/new",
        "internet=AF_INET",
        "child",
        "private=mine",
        **ordinary,
    )
    assert facts["results"] == ["done", "EACCES", "EACCES", "EPERM", "EPERM", "done"]
    ended = confined_with("pass", Sandbox(user="daemon"), **ordinary)
    assert "runs as root" in ended.stderr


# -- kernels with less, and sandboxes with a hole ---------------------------------------------------

WITHOUT = (
    "from workers.sandbox import seccomp as s; from workers.sandbox import privileges as p; p.no_new_privileges();"
    "s.NUMBERS.update(landlock=(444, 444), prctl=(157, 167));"
    "s.install(s.program([s.Rule(*x) for x in {rules}], s.machine()))"
)
NO_LANDLOCK = WITHOUT.format(rules="[('landlock', 'never', 0, (), 38)]")
NO_SECCOMP = WITHOUT.format(rules="[('prctl', 'but', 0, (22,), 22)]")
NO_NAMESPACES = WITHOUT.format(rules="[('unshare',)]")
NO_NETWORK_NAMESPACE = (  # but one of mounts: as root the scratch folder would be mounted on this machine, for good
    "from workers.sandbox import privileges as x; x.isolate = lambda **_: x._unshare(x._CLONE_NEWNS) and ''"
)


@pytest.mark.parametrize(
    ("patch", "layers"),
    [
        (NO_LANDLOCK, {Layer.READS, Layer.WRITES}),
        (NO_SECCOMP, {Layer.CALLS}),
        (NO_NAMESPACES, {Layer.NETWORK, Layer.MEMORY}),
    ],
)
def test_a_kernel_with_less_is_said_and_strict_refuses_it(ground: Ground, patch: str, layers: set[Layer]) -> None:
    folders = (str(ground.models),)
    lenient = confined_with(patch, Sandbox(model_folders=folders))
    assert lenient.returncode == 0, lenient.stderr
    _, active, missing = json.loads(lenient.stdout)
    assert layers <= missing.keys()
    assert not layers & set(active)
    user = "nobody" if IS_ROOT else ""
    strict = confined_with(patch, Sandbox(mode="strict", user=user, model_folders=folders))
    assert strict.returncode == 1
    assert all(layer in strict.stderr for layer in layers - {Layer.MEMORY})


@pytest.mark.parametrize(
    ("patch", "layer"),
    [
        ("from workers.sandbox import landlock as x; x.restrict = lambda fd: None", Layer.WRITES),
        ("from workers.sandbox import landlock as x; x.ruleset = lambda *_, **__: -1", Layer.READS),
        ("from workers.sandbox import seccomp as x; x.install = lambda code: None", Layer.CALLS),
        ("from workers.sandbox import seccomp as x; x.rules = lambda *_: []", Layer.CALLS),
        ("from workers.sandbox import privileges as x; x.drop_capabilities = lambda: None", Layer.RIGHTS),
        ("from workers.sandbox import privileges as x; x.limit = lambda **_: None", Layer.LIMITS),
        (NO_NETWORK_NAMESPACE, Layer.NETWORK),
        ("from workers.sandbox import privileges as x; x.die_with_parent = lambda **_: None", Layer.PARENT),
        ("from workers.sandbox import privileges as x; x.become = lambda user: None", Layer.USER),
        ("from workers.sandbox import confine as x; x._settle_in = lambda scratch: None", Layer.ENVIRONMENT),
    ],
)
def test_a_layer_that_does_not_hold_is_noticed_and_refused(ground: Ground, patch: str, layer: Layer) -> None:
    if not IS_ROOT and layer in {Layer.RIGHTS, Layer.USER}:
        pytest.skip("an ordinary user has no such rights to keep")
    sandbox = Sandbox(user="nobody" if IS_ROOT else "", model_folders=(str(ground.models),))
    if layer is Layer.RIGHTS:
        sandbox = Sandbox(model_folders=sandbox.model_folders)  # another user has none anyway
    ended = confined_with(patch, sandbox, env={"SIGNALBOX_NATS_PASSWORD": "secret"})
    assert ended.returncode == 1
    assert "does not hold" in ended.stderr
    assert layer.value in ended.stderr


@needs_root
def test_the_parent_death_signal_armed_before_the_change_of_user_is_noticed() -> None:
    """Mutant 10: a change of user clears what was armed before it."""
    patch = (
        "from workers.sandbox import privileges as p; arm, become = p.die_with_parent, p.become;"
        "p.die_with_parent = lambda **_: None;"
        "p.become = lambda user: (arm(is_dumpable=False), become(user))"
    )
    ended = confined_with(patch, Sandbox(user="nobody"))
    assert ended.returncode == 1
    assert Layer.PARENT.value in ended.stderr


def test_the_report_of_a_process_that_is_thrown_away_is_what_a_runner_gets(ground: Ground) -> None:
    sandbox = Sandbox(model_folders=(str(ground.models),))
    assert set(probe(sandbox, "cpu").active) == set(tried(sandbox)["active"])


def test_check_config_says_what_is_active_and_a_worker_refuses_what_cannot_be_kept() -> None:
    reported = run(["-m", "workers", "--check-config"])
    assert reported.returncode == 0
    assert f"active   {Layer.WRITES}" in reported.stdout or f"MISSING  {Layer.WRITES}" in reported.stdout
    refused = run(["-m", "workers"], env={"SIGNALBOX_WORKER_SANDBOX": "strict"})
    assert refused.returncode == 2
    assert "SIGNALBOX_WORKER_MODEL_FOLDERS" in refused.stderr


# -- under the guard -------------------------------------------------------------------------------


async def test_a_runner_of_another_user_dies_with_its_guard_even_frozen(tmp_path: Path) -> None:
    words = Words()
    user = "nobody" if IS_ROOT else ""
    argv = [
        sys.executable,
        "-m",
        "tests.rigs.lightrunner",
        "--gpu",
        "CPU-0",
        "--kind",
        "cpu",
        "--sandbox",
        Sandbox(user=user).argument(),
    ]
    guard = GuardLink(tmp_path / "lock", argv, {"PYTHONPATH": str(ROOT)}, is_runner_kept=True, on_report=words.put)
    ends = guard.spawn()
    runner = (await words.receive("spawned")).number
    ends.data.setblocking(True)
    assert ends.data.recv(1), "the first word says that it is confined"
    with socket.socket(fileno=os.dup(ends.data.fileno())):
        watched = os.pidfd_open(runner)
        os.kill(runner, signal.SIGSTOP)  # so that only the kernel can end it
        os.kill(guard.pid, signal.SIGKILL)
        await words.ended(watched)
    await guard.close(5.0)
    ends.close()


async def test_a_runner_whose_sandbox_does_not_hold_serves_nobody(tmp_path: Path) -> None:
    words = Words()
    argv = [
        sys.executable,
        "-m",
        "tests.rigs.lightrunner",
        "--gpu",
        "CPU-0",
        "--kind",
        "cpu",
        "--sandbox",
        Sandbox(mode="strict").argument(),
    ]
    guard = GuardLink(tmp_path / "lock", argv, {"PYTHONPATH": str(ROOT)}, is_runner_kept=True, on_report=words.put)
    ends = guard.spawn()
    died: GuardReport = await words.receive("died")
    assert died.status == REFUSED
    ends.data.setblocking(True)
    assert ends.data.recv(1) == b""
    await guard.close(5.0)
    ends.close()


@pytest.mark.parametrize("mode", ["auto", "off"])
async def test_a_runner_that_was_broken_into_keeps_the_lock_and_the_token_it_was_given(
    tmp_path: Path, mode: Mode
) -> None:
    words, lock = Words(), tmp_path / "lock"
    argv = [sys.executable, "-m", "tests.rigs.lockthief", Sandbox(mode=mode).argument()]
    guard = GuardLink(lock, argv, {"PYTHONPATH": str(ROOT)}, is_runner_kept=True, on_report=words.put)
    ends = guard.spawn()
    runner = (await words.receive("spawned")).number
    guard.lock()
    await words.receive("locked")
    guard.enter(41, time.clock_gettime_ns(time.CLOCK_BOOTTIME) + LIMIT_S * 10**9)
    await words.receive("entered")
    ends.data.setblocking(True)
    found = json.loads(ends.data.recv(4096))
    is_confined = mode != "off"
    assert (found["overwrite"], found["empty"]) == ("EBADF", "EINVAL")
    assert int(lock.read_text()) == 41
    if is_confined:
        assert {found[name] for name in ("unlock", "weaken", "orphan")} == {"EPERM"}
        assert found["reopen"] == ("EACCES" if landlock.abi() else "done")
        with lock.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        watched = os.pidfd_open(runner)
        os.kill(guard.pid, signal.SIGKILL)
        await words.ended(watched)
    await guard.close(5.0)
    ends.close()
