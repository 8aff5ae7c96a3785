"""The load: predictions that wait, whose records are short-lived, and jobs that are waited for, whose are not."""

import asyncio
from typing import Final, NamedTuple

from benchmarks.day.samples import Site
from benchmarks.front.path import BODY, PATH
from benchmarks.rig.bed import headers_of
from benchmarks.rig.load import Figures, prepare, run


class Load(NamedTuple):
    """Requests in flight, of each kind."""

    predicts: int = 24
    jobs: int = 8

    async def drive(self, site: Site, seconds: float) -> dict[str, Figures]:
        """Ask a stack for ``seconds``; the figures by what was asked."""
        doc = site.read()
        headers = headers_of(doc["api_key"])
        waiting = {**headers, "Prefer": "respond-async, wait=30"}
        asked = {
            "predicts": (prepare(doc["front"], PATH, BODY, headers), self.predicts),
            "jobs": (prepare(doc["front"], PATH, BODY, waiting), self.jobs),
        }
        figures = await asyncio.gather(
            *(
                asyncio.to_thread(run, target, in_flight, seconds=seconds, warm_s=0.0)
                for target, in_flight in asked.values()
            )
        )
        return dict(zip(asked, figures, strict=True))


USUAL: Final = Load()
