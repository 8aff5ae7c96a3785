"""The runner's sandbox: a model is a foreign program, so the process that runs it can reach almost nothing.

:func:`confine` is called by the runner in its first lines, before TensorFlow is imported. What is in
force is then tried out (:mod:`workers.sandbox.selftest`), and a runner in which something that should hold
does not refuses to serve. ``python -m workers.sandbox`` confines itself and says what is active.
"""

import argparse
import os
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program.errors import Misconfigured
from workers.sandbox import landlock, privileges, scratch, seccomp, selftest
from workers.sandbox.confinement import Confinement, Sandbox
from workers.sandbox.landlock import PathGrant
from workers.sandbox.selftest import Layer

SCRATCH_BYTES: Final = 256 << 20
_ROOT: Final = Path(__file__).resolve().parents[2]
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
    before = selftest.Before.read()
    folder = scratch.make(user)
    if why := privileges.isolate(may_be_user=user is None):
        missing[Layer.NETWORK] = missing[Layer.MEMORY] = why
    elif why := privileges.mount_scratch(folder, SCRATCH_BYTES, user):
        missing[Layer.MEMORY] = why
    _settle_in(folder)
    privileges.limit(is_own_user=user is not None)
    version = landlock.abi()
    fence = -1
    if version:
        fence = _fence(sandbox, kind, devices, folder, version)
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
            env={k: v for k, v in os.environ.items() if k in {"PATH", "TMPDIR"}} | {"PYTHONPATH": str(_ROOT)},
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise Misconfigured(f"The runner's sandbox cannot be tried out: {error}.") from error
    tidy(sandbox)
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip().splitlines() or ["it crashed"]
        raise Misconfigured(said[-1])
    return msgspec.json.decode(ended.stdout, type=Confinement)


def tidy(sandbox: Sandbox) -> None:
    """Remove the private folders of runners that have ended. Never raises."""
    with suppress(Misconfigured):
        scratch.sweep(privileges.find_user(sandbox.user, []) if sandbox.user else None)


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


def _fence(sandbox: Sandbox, kind: str, devices: list[Path], folder: Path, version: int) -> int:
    whole = landlock.everything(version)
    grants = [*_grants(kind, devices), PathGrant(folder, whole & ~landlock.EXECUTE)]
    grants += [PathGrant(Path(models), landlock.READ) for models in sandbox.model_folders]
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


def _settle_in(folder: Path) -> None:
    """Everything temporary goes to the private folder, and the environment has no settings of Signalbox."""
    for name in [name for name in os.environ if name.startswith("SIGNALBOX_")]:
        del os.environ[name]
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        os.environ[name] = str(folder)
    tempfile.tempdir = str(folder)
    os.umask(0o077)
    os.chdir(folder)
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
