"""``python -m benchmarks.queue.rows FOLDER COUNT``: many models that are one, as the console would have them.

Rows in the console's database and documents in ``models``, with its settings in the environment. Through its API each
would be inspected by itself, in a process of its own. Prints how many there are.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import django

from signalbox.bus import table
from signalbox.bus.client import Bus
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Bucket, token

AT_ONCE: Final = 200


def main() -> None:
    """The command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    django.setup()
    documents = _registered(Path(sys.argv[1]), int(sys.argv[2]))
    asyncio.run(_publish(documents))
    print(len(documents))


def name_of(number: int) -> str:
    """Of the model with that number, from 0."""
    return f"m{number:05}"


def _registered(folder: Path, count: int) -> list[Model]:
    from django.conf import settings

    from console.catalog import inspection
    from console.catalog.models import ModelVersion, ServedModel

    found = inspection.inspect(folder)
    kept = settings.CONSOLE.kept_path(folder)
    ServedModel.objects.bulk_create(
        [ServedModel(name=name_of(number), base_path=kept, rows_independent=True) for number in range(count)],
        batch_size=500,
    )
    versions = [
        ModelVersion(
            model=model,
            number=1,
            path=kept,
            digest=found.digest,
            size_bytes=found.size_bytes,
            signatures=found.signatures,
            joining={"joined": ["serving_default"], "differs": "", "untried": "", "digest": found.digest, "worker": ""},
            rules=found.rules,
            source="path",
            added_by="bench",
        )
        for model in ServedModel.objects.filter(base_path=kept)
    ]
    ModelVersion.objects.bulk_create(versions, batch_size=500)
    models = ServedModel.objects.filter(base_path=kept).prefetch_related("versions", "labels__version")
    return [model.document() for model in models]


async def _publish(documents: list[Model]) -> None:
    from django.conf import settings

    async with await Bus.connect(settings.CONSOLE, role="console", name="bench") as bus:
        for start in range(0, len(documents), AT_ONCE):
            some = documents[start : start + AT_ONCE]
            await asyncio.gather(*(table.put(bus, Bucket.MODELS, token(doc.name), doc) for doc in some))


if __name__ == "__main__":
    main()
