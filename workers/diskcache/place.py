"""Where the files of a version are, for who loads it. Here: in place, as all have an absolute path."""

from collections.abc import Collection
from typing import NamedTuple

from signalbox.wire.modeldocs import Model, Version

Key = tuple[str, int]
"""Model name and version."""


class Place(NamedTuple):
    """Where a version's files are, and the digest that they must have; empty = any."""

    folder: str
    digest: str


class LocalFiles:
    """Where all versions have an absolute path. fetched_until: when a fetch last ended, UTC seconds."""

    fetched_until = 0.0

    def find(self, model: str, version: Version) -> Place | None:
        """Where a version's files are; None while they are not here."""
        del model
        return Place(version.path, version.digest)

    def request(self, model: str, version: Version) -> None:
        """Have a version fetched that is not here. Idempotent."""

    def is_fetching(self, model: str, version: Version) -> bool:
        """Whether a version is being fetched, or tried again after a while."""
        del model, version
        return False

    def fetched(self, key: Key) -> tuple[float, float] | None:
        """When the last fetch of a version began and ended, UTC seconds; None where none is remembered."""
        del key
        return None

    def can_be_tried(self, model: str, version: Version) -> bool:
        """Whether a load needs no fetch: the files are here, or cannot be had, as the load will say."""
        return self.find(model, version) is not None or bool(self.refusal(model, version))

    def may_serve(self, model: Model) -> bool:
        """Whether a version of the model can be tried."""
        return any(self.can_be_tried(model.name, version) for version in model.versions)

    def fetch(self, model: Model, versions: Collection[int]) -> None:
        """Have these versions of the model fetched. Idempotent."""
        for version in model.versions:
            if version.version in versions:
                self.request(model.name, version)

    def refusal(self, model: str, version: Version) -> str:
        """Why a version cannot be fetched as long as nobody changes it; empty = it can, or is here."""
        del model, version
        return ""

    async def open(self, model: str, version: Version) -> Place:
        """The files of a version that is to be loaded; they stay until :meth:`release`.

        Raises :class:`Unavailable` where they are not here, and :class:`NotServing` where they cannot be had.
        """
        del model
        return Place(version.path, version.digest)

    async def settle(self, model: str, version: Version, digest: str) -> None:
        """A version was loaded from files of this digest. Raises :class:`NotServing` where it should be another."""

    def doubt(self, model: str, version: Version) -> None:
        """A load of these files failed: see whether they are damaged, and fetch them again if so."""

    def shortage(self) -> tuple[str, int]:
        """The model of a fetch for which files in use leave no room, and how many bytes it lacks; 0 = there is none."""
        return "", 0

    def held_bytes(self, key: Key) -> int:
        """How much of the disk cache comes free where a version is unloaded that is loaded here."""
        del key
        return 0

    def release(self, key: Key) -> None:
        """A version is not loaded any more. Idempotent."""

    def release_all(self, but: Collection[Key] = ()) -> None:
        """No version is loaded any more, but these."""
