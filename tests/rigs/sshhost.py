"""A machine that ssh reaches: a network namespace of its own with an sshd, on this machine's files. Needs root."""

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_LISTENING: Final = b"Server listening on"


class SshHost:
    """``with SshHost(folder) as host: ... host.ssh`` is a command line of ssh, ``host.target`` whom it calls.

    commands: a folder whose programs its users find first. has_systemd: it looks like a machine that systemd runs. Its
    /run is its own. name: of its network namespace. address: where programs of this machine are reached from in there.
    """

    target = "root@gpu-1"

    def __init__(self, folder: Path, *, commands: Path | None = None, has_systemd: bool = False) -> None:
        self._path = f"{commands}:{_PATH}" if commands is not None else _PATH
        self._made = "/run/sshd /run/systemd/system" if has_systemd else "/run/sshd"
        pid = os.getpid()
        self._folder = folder
        self.name = f"sbssh{pid}"
        block = pid * 4 % 65_536
        stem = f"10.214.{block >> 8}.{block & 255}"
        self.address, self._inside = (f"{stem.rpartition('.')[0]}.{(block & 255) + n}" for n in (1, 2))
        self._process: subprocess.Popen[bytes] | None = None
        self.ssh = f"ssh -F {folder}/client"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lay_network()
            self._write()
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def inside(self, *argv: str) -> tuple[str, ...]:
        """A command line that runs in the namespace."""
        return ("ip", "netns", "exec", self.name, *argv)

    def _lay_network(self) -> None:
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _run("ip", "addr", "add", f"{self.address}/30", "dev", self.name)
        _run("ip", "link", "set", self.name, "up")
        _run(*self.inside("ip", "addr", "add", f"{self._inside}/30", "dev", "eth0"))
        for device in ("lo", "eth0"):
            _run(*self.inside("ip", "link", "set", device, "up"))

    def _write(self) -> None:
        """Keys of both ends, and what each is told of the other."""
        for name in ("host_key", "client_key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / name))
        shutil.copy(self._folder / "client_key.pub", self._folder / "authorized")
        known = (self._folder / "host_key.pub").read_text()
        (self._folder / "known").write_text(f"gpu-1 {known}")
        (self._folder / "server").write_text(
            f"ListenAddress {self._inside}:22\nHostKey {self._folder}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self._folder}/authorized\nStrictModes no\nPermitRootLogin yes\n"
            f"SetEnv PATH={self._path}\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        )
        (self._folder / "client").write_text(
            f"Host gpu-1\nHostName {self._inside}\nHostKeyAlias gpu-1\nIdentityFile {self._folder}/client_key\n"
            f"UserKnownHostsFile {self._folder}/known\nStrictHostKeyChecking yes\nBatchMode yes\nConnectTimeout 10\n"
        )

    def _start(self) -> None:
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "sshd"
        self._process = subprocess.Popen(
            self.inside(
                *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c"),
                f"mount -t tmpfs none /run && mkdir -p {self._made} && exec {sshd} -D -e -f {self._folder}/server",
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert self._process.stderr is not None
        said = b""
        while _LISTENING not in (line := self._process.stderr.readline()):
            said += line
            assert line, said.decode()

    def _end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.name], capture_output=True, check=False)  # where it still is


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, (argv, done.stderr)
