"""A folder of keys of hosts: public ones for nats-server's configuration, seeds for hosts that are added later.

Keys are made ahead, so that a host is added without a change at any node, and by a person's command alone: no program
that runs can make one. ``NAME.pub`` is a key that the servers shall know, ``NAME.seed`` (mode 600) is there until a
host has it. One that a host is being given, and perhaps has, is ``NAME.given``; so are those of pods, whose Secret is
written whole each time.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from signalbox.program import nkeys
from signalbox.program.errors import Misconfigured, NotFound
from signalbox.wire.names import host_user, is_host_user

_PUBLIC, _SEED, _GIVEN = ".pub", ".seed", ".given"
_CLOSED: Final = 0o700


class Key(NamedTuple):
    """One key. host: who has it, as it was added (``user@host``); empty = nobody yet. is_free: its seed is here."""

    name: str
    public: str
    host: str
    is_free: bool


class Keys:
    """The keys in one folder, which is made when the first key is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[Key]:
        """Every key that is not revoked, by name. Raises :class:`Misconfigured` for a file that is no key's."""
        return [self._read(path) for path in sorted(self.folder.glob(f"*{_PUBLIC}"))]

    def top_up(self, wanted: int) -> list[str]:
        """Make keys until so many are free; the names of those that were made."""
        lacking = wanted - sum(key.is_free for key in self.all())
        return [self._mint() for _ in range(lacking)]

    def revoke(self, names: Iterable[str]) -> None:
        """Forget keys, and their seeds; servers do when they are told the others. Raises :class:`NotFound`."""
        known = {key.name for key in self.all()}
        wanted = list(names)
        for name in wanted:
            if name not in known:
                raise NotFound(f"{self.folder} has no key {name}.")
        for name in wanted:
            for suffix in (_SEED, _GIVEN, _PUBLIC):  # the public one last: cut short, it can be revoked again
                self._path(name, suffix).unlink(missing_ok=True)

    def take(self) -> tuple[Key, str]:
        """A free key and its seed, which no other call gets. Raises :class:`NotFound` where there is none."""
        for key in self.all():
            if not key.is_free:
                continue
            try:
                self._path(key.name, _SEED).rename(self._path(key.name, _GIVEN))
            except FileNotFoundError:
                continue  # another command has taken it
            return key, self._path(key.name, _GIVEN).read_text("ascii").strip()
        raise self._none_free("no free key", 20)

    def put_back(self, name: str) -> None:
        """Free a taken key, which no host has."""
        self._path(name, _GIVEN).rename(self._path(name, _SEED))

    def keep(self, name: str, host: str) -> None:
        """Note which host has a key; the seed is then nowhere but there. Idempotent; no error for an unknown key."""
        path = self._path(name, _PUBLIC)
        if path.exists():
            _write(path, f"{self._read(path).public} {host}\n")
        self._path(name, _GIVEN).unlink(missing_ok=True)

    def of(self, host: str) -> tuple[Key, str]:
        """The key of a host whose seed stays here too, and that seed; a free one where it has none. Idempotent.

        Raises :class:`NotFound` without a free key, :class:`Misconfigured` where its seed is nowhere but there.
        """
        for key in self.all():
            if key.host == host:
                path = self._path(key.name, _GIVEN)
                if not path.exists():
                    raise Misconfigured(f"{host} has the key {key.name}, whose seed is not here: revoke it first.")
                return key, path.read_text("ascii").strip()
        key, seed = self.take()
        _write(self._path(key.name, _PUBLIC), f"{key.public} {host}\n")
        return key._replace(host=host, is_free=False), seed

    def require_free(self, hosts: Iterable[str]) -> None:
        """Raise :class:`NotFound` where there are fewer free keys than hosts without one, before any host has one."""
        every = self.all()
        lacking = len(set(hosts) - {key.host for key in every})
        free = sum(key.is_free for key in every)
        if free < lacking:
            raise self._none_free(f"{free} free keys for {lacking} pods", max(20, lacking))

    def _none_free(self, words: str, wanted: int) -> NotFound:
        mend = f"signalbox nats-users --keys {self.folder} --pool {wanted}, with the other options of before"
        return NotFound(f"{self.folder} has {words}: {mend}, then reload NATS.")

    def _mint(self) -> str:
        self.folder.mkdir(mode=_CLOSED, parents=True, exist_ok=True)
        seed = nkeys.mint()
        key = nkeys.public(seed)
        name = host_user(key)
        if self._path(name, _PUBLIC).exists():  # 40 bits of the key: once in a thousand billion
            return self._mint()
        _write(self._path(name, _SEED), f"{seed}\n")
        _write(self._path(name, _PUBLIC), f"{key}\n")
        return name

    def _read(self, path: Path) -> Key:
        key, _, host = path.read_text("utf-8").strip().partition(" ")
        if not nkeys.PUBLIC.fullmatch(key) or path.stem != host_user(key):
            raise Misconfigured(f"{path} is no public key of a host, under its name.")
        return Key(path.stem, key, host, self._path(path.stem, _SEED).exists())

    def _path(self, name: str, suffix: str) -> Path:
        if not is_host_user(name):
            raise NotFound(f"{name} is no name of a host's key.")
        return self.folder / f"{name}{suffix}"


def _write(path: Path, text: str) -> None:
    """Write a file of mode 600, whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
