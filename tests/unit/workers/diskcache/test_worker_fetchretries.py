"""A fetch that fails is tried for ever, and after ever longer pauses."""

from pathlib import Path
from typing import cast

import pytest

from signalbox.bus.client import Bus
from signalbox.program import metrics
from signalbox.wire.modeldocs import Model, Version
from workers.diskcache import files
from workers.diskcache.files import Files
from workers.diskcache.settings import CacheSettings
from workers.diskcache.stores import Stores

FAR = Version(version=1, path="s3://shop/far/1")
MODEL = Model(name="far", versions=(FAR,))


async def test_a_fetch_is_tried_after_growing_pauses_for_as_long_as_the_catalog_has_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(_: object, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(files._Fetch, "pause", pause)
    catalog = {"far": MODEL}
    told: list[str] = []

    def on_change(model: str) -> None:
        told.extend(each.error for each in kept.residencies(()))
        if len(pauses) == 20:
            catalog.pop(model, None)

    kept = Files(
        cast("Bus", None),
        CacheSettings(folder=tmp_path / "cache"),
        "h",
        host_id="h",
        open_store=Stores(None).open,
        find_model=catalog.get,
        is_removed=lambda name: name not in catalog,
        on_change=on_change,
    )
    kept.request("far", FAR)
    await kept._tasks.finish()
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, *[60.0] * 15]
    assert set(told) == {"", "It names no repository, whose credentials would be used."}
    assert metrics.REGISTRY.get_sample_value("signalbox_worker_cache_failures_total", {"model": "far"}) == len(pauses)
    assert not kept.is_fetching("far", FAR), "the catalog has it no more"
    await kept.close()
