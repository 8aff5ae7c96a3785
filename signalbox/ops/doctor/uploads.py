"""Whether the object store of a console's uploads can be written to."""

from pathlib import Path
from typing import Final

from signalbox.ops.doctor.catalog import Finding
from signalbox.ops.doctor.environment import Environment
from signalbox.program.errors import SignalboxError
from signalbox.repositories.location import Location

_URL: Final = "SIGNALBOX_CONSOLE_UPLOADS_URL"
_REPOSITORY: Final = "uploads"


async def examine(env: Environment) -> list[Finding]:
    """Write a file there, and remove it. Nothing where uploads are kept in a folder."""
    if not (url := env.get(_URL)):
        return []
    from signalbox.repositories.store import ObjectStore  # 5 MB, which most calls need not have

    credentials = env.get("SIGNALBOX_CONSOLE_REPOSITORY_CREDENTIALS")
    try:
        store = ObjectStore.open(Location.parse(url), Path(credentials) if credentials else None, _REPOSITORY)
        await store.probe()
    except SignalboxError as error:
        return [Finding("uploads.unwritable", _URL, f"{url}: {error.public_message}")]
    return []
