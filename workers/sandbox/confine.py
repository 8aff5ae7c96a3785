"""The runner's sandbox: a model is a foreign program, so the process that runs it can reach almost nothing.

:func:`confine` is called by the runner in its first lines, before TensorFlow is imported. What is in
force is then tried out (:mod:`workers.sandbox.selftest`), and a runner in which something that should hold
does not refuses to serve. ``python -m workers.sandbox`` confines itself and says what is active.
"""

import argparse
import fcntl
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program.errors import Misconfigured
from workers.sandbox import landlock, privileges, seccomp, selftest
from workers.sandbox.confinement import Confinement, Sandbox
from workers.sandbox.landlock import PathGrant
from workers.sandbox.privileges import SystemUser
from workers.sandbox.selftest import Layer

SCRATCH_BYTES: Final = 256 << 20
_ROOT: Final = Path(__file__).resolve().parents[2]
_SCRATCH: Final = "signalbox-runner-"
_STALE_S: Final = 60.0
_PROBE_S: Final = 60.0
_SYSTEM: Final = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/ssl/openssl.cnf",
    "/proc",
    "/sys",
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_NVIDIA: Final = ("nvidiactl", "nvidia-uvm*", "nvidia-modeset", "nvidia-caps", "nvidia[0-9]*")
_NVIDIA_READ: Final = ("/opt", "/etc/nvidia", "/run/nvidia-persistenced")
"""CUDA also writes below /proc, where it names its threads, in a file that it empties first: without either right
cuInit fails with 304."""


def confine(sandbox: Sandbox, kind: str) -> Confinement:
    """Confine this process, of one thread, to running models on a device of ``kind``, for good.

    Raises :class:`Misconfigured` where the kernel promised a layer that does not hold, or ``strict``
    misses one; the process may be half confined then and must end.
    """
    if sandbox.mode == "off":
        privileges.no_new_privileges()
        privileges.die_with_parent(is_dumpable=False)
        return Confinement()
    devices = _nvidia_devices() if kind == "nvidia" else []
    user = privileges.find_user(sandbox.user, devices) if sandbox.user else None
    if user is not None and os.geteuid() != 0:
        raise Misconfigured("SIGNALBOX_WORKER_RUNNER_USER needs a worker that runs as root.")
    missing: dict[Layer, str] = {}
    before = selftest.Before.look()
    scratch = _scratch(user)
    if why := privileges.isolate(may_be_user=user is None):
        missing[Layer.NETWORK] = missing[Layer.MEMORY] = why
    elif why := privileges.mount_scratch(scratch, SCRATCH_BYTES, user):
        missing[Layer.MEMORY] = why
    _settle_in(scratch)
    privileges.limit(is_own_user=user is not None)
    version = landlock.abi()
    fence = -1
    if version:
        fence = _fence(sandbox, kind, devices, scratch, version)
    else:
        missing[Layer.READS] = missing[Layer.WRITES] = "this kernel has no Landlock"
    if not sandbox.model_folders:
        missing[Layer.READS] = "SIGNALBOX_WORKER_MODEL_FOLDERS is empty"
    if user is not None:
        privileges.become(user)
    elif os.geteuid() == 0:
        missing[Layer.USER] = "the worker runs as root and SIGNALBOX_WORKER_RUNNER_USER is empty"
    else:
        missing[Layer.USER] = "only a worker that runs as root can give the runner another user"
    privileges.drop_capabilities()
    privileges.no_new_privileges()
    privileges.die_with_parent(is_dumpable=kind == "nvidia")
    if fence >= 0:
        landlock.restrict(fence)
    machine = seccomp.machine()
    if machine in seccomp.ARCHITECTURES:
        try:
            seccomp.install(seccomp.program(seccomp.rules(kind, os.getpid()), machine))
        except OSError as error:
            missing[Layer.CALLS] = f"this kernel has no seccomp filters: {error.strerror}"
    else:
        missing[Layer.CALLS] = f"there is no table of system calls for {machine}"
    return _judged(sandbox, before, missing, kind)


def probe(sandbox: Sandbox, kind: str) -> Confinement:
    """Confine a process that is thrown away, and report which layers hold. Raises :class:`Misconfigured`."""
    command = [sys.executable, "-m", "workers.sandbox", "--kind", kind]
    try:
        ended = subprocess.run(
            [*command, "--sandbox", sandbox.argument()],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_S,
            check=False,
            env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(_ROOT)},
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise Misconfigured(f"The runner's sandbox cannot be tried out: {error}.") from error
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip().splitlines() or ["it crashed"]
        raise Misconfigured(said[-1])
    return msgspec.json.decode(ended.stdout, type=Confinement)


def _judged(sandbox: Sandbox, before: selftest.Before, missing: dict[Layer, str], kind: str) -> Confinement:
    """Report which layers hold, or the refusal."""
    claimed = frozenset(Layer) - missing.keys()
    broken = selftest.broken(before, claimed, kind)
    if broken:
        said = "; ".join(f"{layer.value}: {why}" for layer, why in broken.items())
        raise Misconfigured(f"The runner's sandbox does not hold. {said}.")
    if sandbox.mode == "strict":
        needed = missing.keys() - {Layer.MEMORY} - ({Layer.USER} if os.geteuid() else set())
        if needed:
            said = "; ".join(f"{layer.value}: {missing[layer]}" for layer in sorted(needed))
            raise Misconfigured(f"SIGNALBOX_WORKER_SANDBOX=strict cannot be kept. {said}.")
    return Confinement(
        sandbox.mode,
        tuple(sorted(layer.value for layer in claimed)),
        {layer.value: why for layer, why in sorted(missing.items())},
    )


def _fence(sandbox: Sandbox, kind: str, devices: list[Path], scratch: Path, version: int) -> int:
    whole = landlock.everything(version)
    grants = [*_grants(kind, devices), PathGrant(scratch, whole & ~landlock.EXECUTE)]
    grants += [PathGrant(Path(folder), landlock.READ) for folder in sandbox.model_folders]
    withheld = whole if sandbox.model_folders else whole & ~landlock.READ
    return landlock.ruleset(grants, withheld=withheld, version=version)


def _grants(kind: str, devices: list[Path]) -> Iterator[PathGrant]:
    """What every runner needs, whatever model it runs."""
    code = landlock.READ | landlock.EXECUTE
    for path in (*_SYSTEM, *_python()):
        yield PathGrant(Path(path), code)
    for path in _DEVICES:
        yield PathGrant(Path(path), landlock.READ_FILE | landlock.WRITE_FILE)
    if kind == "nvidia":
        rights = landlock.READ | landlock.WRITE_FILE | landlock.IOCTL_DEV
        yield from (PathGrant(path, rights) for path in devices)
        yield from (PathGrant(Path(path), code) for path in _NVIDIA_READ)
        yield PathGrant(Path("/proc"), landlock.READ | landlock.WRITE_FILE | landlock.TRUNCATE)


def _python() -> Iterator[str]:
    """This Python, its packages, and the two packages of Signalbox that a runner imports."""
    yield from {sys.prefix, sys.base_prefix, sys.exec_prefix, sysconfig.get_path("stdlib")}
    yield from site.getsitepackages()
    yield from (path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"})
    yield from (str(_ROOT / package) for package in ("signalbox", "workers"))
    if main := getattr(sys.modules["__main__"], "__file__", ""):
        yield str(Path(main).resolve().parent)
    for package in ("tensorflow", "numpy"):
        spec = find_spec(package)
        yield from (spec.submodule_search_locations or ()) if spec else ()
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))


def _nvidia_devices() -> list[Path]:
    return sorted(found for pattern in _NVIDIA for found in Path("/dev").glob(pattern))


def _scratch(user: SystemUser | None) -> Path:
    """A new private folder; those of runners that are gone are removed."""
    parent = Path(tempfile.gettempdir())
    for old in parent.glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            _remove_if_stale(old, user)
    folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent))
    if user is not None:
        os.chown(folder, user.uid, user.gid)
    fcntl.flock(os.open(folder, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)  # until this process ends
    return folder


def _remove_if_stale(old: Path, user: SystemUser | None) -> None:
    fd = os.open(old, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(fd)
        is_ours = facts.st_uid in {os.geteuid(), user.uid if user else os.geteuid()}
        if is_ours and facts.st_mtime < time.time() - _STALE_S:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old)
    finally:
        os.close(fd)


def _settle_in(scratch: Path) -> None:
    """Everything temporary goes to the private folder, and the environment has no settings of Signalbox."""
    for name in [name for name in os.environ if name.startswith("SIGNALBOX_")]:
        del os.environ[name]
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        os.environ[name] = str(scratch)
    tempfile.tempdir = str(scratch)
    os.umask(0o077)
    os.chdir(scratch)
    sys.dont_write_bytecode = True


def main() -> int:
    """The command: 0 and what is active as JSON, or 1 and why a runner would refuse to serve."""
    parser = argparse.ArgumentParser(prog="python -m workers.sandbox", description=__doc__)
    parser.add_argument("--kind", choices=("cpu", "nvidia"), default="cpu")
    parser.add_argument("--sandbox", type=Sandbox.of_argument, default=Sandbox())
    args = parser.parse_args()
    try:
        found = confine(args.sandbox, args.kind)
    except (Misconfigured, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    return 0
