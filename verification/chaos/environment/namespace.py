"""A network namespace whose packets the kernel drops.

Needs root, ``ip`` and ``nft``; :func:`reason_against` says in words what is missing.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

_TABLE: Final = "chaos"


def run(*argv: str, text: str = "") -> None:
    """A short command that must succeed."""
    subprocess.run(argv, input=text.encode(), check=True, capture_output=True, timeout=20)


def output(*argv: str) -> str:
    """What a short command says that must succeed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=20).stdout


def reason_against() -> str:
    """Why namespaces cannot be used here; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "nft") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed"
    try:
        with Namespace(255):
            pass
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        words = getattr(error, "stderr", b"") or b""
        return f"the kernel refuses: {words.decode(errors='replace').strip() or error}"
    return ""


class Namespace(NamedTuple):
    """``with Namespace(n) as ns``: one wire from here (``ns.outside``) to the inside (``ns.inside``).

    number: 1 to 255, unique while it exists on this machine.
    """

    number: int

    @property
    def name(self) -> str:
        """Of the namespace; also tells whose it is."""
        return f"chaos{os.getpid()}-{self.number}"

    @property
    def outside(self) -> str:
        """Address of our end."""
        return f"10.{200 + os.getpid() % 50}.{self.number}.1"

    @property
    def inside(self) -> str:
        """Address of the program's end."""
        return f"10.{200 + os.getpid() % 50}.{self.number}.2"

    @property
    def prefix(self) -> tuple[str, ...]:
        """What goes before a command so that it runs inside; its process id stays the same."""
        return ("ip", "netns", "exec", self.name)

    def join(self, outer: str, inner: str) -> None:
        """Give both ends of a wire their address, one of them inside."""
        run("ip", "link", "set", inner, "netns", self.name)
        run("ip", "addr", "add", f"{self.outside}/24", "dev", outer)
        run("ip", "link", "set", outer, "up")
        inside = ("ip", "-n", self.name)
        run(*inside, "addr", "add", f"{self.inside}/24", "dev", inner)
        run(*inside, "link", "set", inner, "up")
        run(*inside, "link", "set", "lo", "up")

    def __enter__(self) -> Self:
        wire, peer = self._wires
        run("ip", "netns", "add", self.name)
        try:
            run("ip", "link", "add", wire, "type", "veth", "peer", "name", peer)
            self.join(wire, peer)
            self.heal()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for argv in (("ip", "link", "del", self._wires[0]), ("ip", "netns", "del", self.name)):
            subprocess.run(argv, check=False, capture_output=True, timeout=20)

    @property
    def _wires(self) -> tuple[str, str]:
        return f"co{os.getpid()}.{self.number}", f"ci{os.getpid()}.{self.number}"

    def drop(self, *, incoming: str = "", outgoing: str = "") -> None:
        """Drop packets: ``all`` of a direction, or ``30`` per cent of them."""
        PacketFilter(self.name).drop(incoming=incoming, outgoing=outgoing)

    def heal(self) -> None:
        """Drop nothing."""
        PacketFilter(self.name).heal()


class PacketFilter(NamedTuple):
    """What the packets of a network namespace meet. name: of the namespace, ours or another's."""

    name: str

    def drop(self, *, incoming: str = "", outgoing: str = "", peers: Sequence[str] = ()) -> None:
        """Drop packets: ``all`` of a direction, or ``30`` per cent. peers: of which peers; empty = all."""
        self._rules(_rule("input", incoming, peers) + _rule("output", outgoing, peers))

    def refuse(self, peers: Sequence[str]) -> None:
        """Answer every TCP packet of ``peers`` with RST: connections break at once and no new one is made."""
        self._rules(_rule("input", "all", peers, "reject with tcp reset"))

    def heal(self) -> None:
        """Drop nothing."""
        self._rules("")

    def _rules(self, rules: str) -> None:
        text = f"table inet {_TABLE} {{}}\ndelete table inet {_TABLE}\ntable inet {_TABLE} {{\n{rules}}}\n"
        run("ip", "netns", "exec", self.name, "nft", "-f", "-", text=text)


def _rule(hook: str, share: str, peers: Sequence[str], end: str = "drop") -> str:
    if not share:
        return ""
    wire, other = ("iifname", "saddr") if hook == "input" else ("oifname", "daddr")
    match = f"ip {other} {{ {', '.join(peers)} }} " if peers else ""
    match += "meta l4proto tcp " if end != "drop" else ""
    match += "" if share == "all" else f"numgen random mod 100 < {int(share)} "
    return (
        f"  chain {hook} {{\n    type filter hook {hook} priority 0;\n"
        f'    {wire} "lo" accept\n    {match}counter {end}\n  }}\n'
    )
