"""Fuzzes what the console shows of frames that customers sent: any bytes, as tensors, texts, images and JSON.

For all bytes, as a frame or as the one string of a frame, they are shown and written within the bounds
that the page states; nothing is raised, and what is described is strict JSON.
"""

import json
from collections.abc import Hashable
from dataclasses import asdict
from pathlib import Path
from typing import Final

import msgspec

from console.payloads import downloads, images, previews
from signalbox.program.errors import TooLarge
from signalbox.wire import tensors

SEEDS: Final = Path(__file__).parent / "corpus" / "payloads"
SHARE: Final = 20_000
TOKENS: Final = (
    b"\x94\xa1x",
    *(bytes([0xA0 | len(name)]) + name.encode() for name in sorted(tensors.DTYPES) if len(name) < 32),
    b"\x90",
    b"\x91\x01",
    b"\x92\x02\x03",
    b"\x93\x01\x08\x08",
    b"\x93\x08\x08\x03",
    b"\xc4\x00",
    b"\xc4\x04",
    b"\x00\x00\xc0\x7f",
    b"\x00\x00\x80\x7f",
    b"\x08\x00\x00\x00",
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b'{"a": [',
    b"]}",
    b"1e999",
)


def one(data: bytes) -> Hashable:
    """One payload, as its page, its description and its files."""
    try:
        found = tensors.decode(data)
    except msgspec.MsgspecError:
        found = [tensors.Tensor("s", "string", (1,), len(data).to_bytes(4, "little") + data)]
    shown = previews.of(found)
    assert len(shown) == min(len(found), previews.MOST_TENSORS)
    kinds: list[Hashable] = []
    for preview in shown:
        json.dumps([asdict(preview.figures) if preview.figures is not None else None, preview.first], allow_nan=False)
        assert len(preview.first) <= previews.SIDE
        assert all(len(row) <= previews.SIDE for row in preview.first)
        assert len(preview.texts) <= previews.MOST_TEXTS
        assert all(len(text.text) <= previews.MOST_LETTERS for text in preview.texts)
        places = [preview.image, *(text.image for text in preview.texts)]
        for place in filter(None, places):
            picture = previews.image(found, place)
            assert picture is not None
            assert images.kind_of(picture.data) == picture.kind, "something else is served as an image"
        trees = sum(text.tree is not None for text in preview.texts)
        kinds.append((preview.dtype, len(preview.shape), any(places), trees > 0, preview.figures is None))
    downloads.as_json(downloads.named(found))
    try:
        downloads.as_npz(found)
    except TooLarge:
        kinds.append("strings")
    return tuple(kinds[:4])
