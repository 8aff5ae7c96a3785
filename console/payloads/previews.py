"""What is shown of tensors: figures over all elements, the first of them, texts, images. Bounded by constants below."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np

from console.payloads import folding, images, values
from console.payloads.folding import Node
from console.payloads.images import Image
from signalbox.wire.tensors import ITEM_SIZE, Tensor

SIDE: Final = 8
"""Elements of a row, and rows, that are shown."""
MOST_TENSORS: Final = 32
MOST_TEXTS: Final = 32
MOST_LETTERS: Final = 2000
"""Of one text."""
MOST_IMAGES: Final = 4
_FEW: Final = 16
"""Elements of a string tensor that is looked through for images."""
_STEP: Final = 1 << 20
"""Elements that are added up at once: no second copy of a large tensor is made."""
_MOST_BYTES_SHOWN: Final = 48


@dataclass(frozen=True)
class Figures:
    """Over all elements that are numbers. least, mean, most: None where there is none, or no order (complex)."""

    least: Any = None
    mean: Any = None
    most: Any = None
    nan: int = 0


@dataclass(frozen=True)
class Text:
    """An element of a string tensor. hidden: letters of it that are not shown. is_text: else its bytes are shown.

    image: its place for :func:`image`; kind: its media type.
    """

    text: str
    size_bytes: int
    hidden: int = 0
    is_text: bool = True
    tree: Node | None = None
    image: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Preview:
    """One tensor. first: rows of its first elements; columns, labels: what stands above and before them.

    left_out: elements of strings that are not shown. image: place of the picture that its numbers are.
    """

    name: str
    dtype: str
    shape: list[int]
    size_bytes: int
    count: int
    figures: Figures | None = None
    first: list[list[Any]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    shown: str = ""
    texts: list[Text] = field(default_factory=list)
    left_out: int = 0
    image: str = ""

    @property
    def rows(self) -> list[tuple[int, list[Any]]]:
        """The first elements, each row with its label."""
        return list(zip(self.labels, self.first, strict=True))


def of(tensors: Sequence[Tensor]) -> list[Preview]:
    """Previews of the first :data:`MOST_TENSORS`."""
    return [_preview(number, tensor) for number, tensor in enumerate(tensors[:MOST_TENSORS])]


def image(tensors: Sequence[Tensor], place: str) -> Image | None:
    """The image at a place that a preview names: ``<tensor>`` or ``<tensor>-<element>``."""
    tensor_number, _, element = place.partition("-")
    if not all(part.isdecimal() and len(part) <= 2 for part in (tensor_number, element or "0")):
        return None
    if int(tensor_number) >= len(tensors):
        return None
    tensor = tensors[int(tensor_number)]
    if not element:
        return images.of_pixels(tensor)
    if tensor.dtype != "string":
        return None
    found = next(islice(values.strings(tensor), int(element), None), None)
    return images.of_string(found) if found is not None else None


def _preview(number: int, tensor: Tensor) -> Preview:
    shape, count = list(tensor.shape), math.prod(tensor.shape)
    facts: dict[str, Any] = {"name": tensor.name, "dtype": tensor.dtype, "shape": shape}
    facts |= {"size_bytes": len(tensor.data), "count": count}
    if tensor.dtype == "string":
        texts = _texts(number, tensor, count)
        return Preview(**facts, texts=texts, left_out=count - len(texts))
    if not count:
        return Preview(**facts)
    rows, labels, shown = _first(tensor)
    picture = str(number) if images.is_pixels(tensor) else ""
    return Preview(**facts, figures=_figures(tensor), first=rows, labels=labels, shown=shown, image=picture)


def _figures(tensor: Tensor) -> Figures:
    size, data = ITEM_SIZE[tensor.dtype], memoryview(tensor.data)
    least: Any = None
    most: Any = None
    total, numbers, nan = 0.0, 0, 0
    for at in range(0, len(data), _STEP * size):
        part = values.decoded(tensor.dtype, data[at : at + _STEP * size])
        if part.dtype.kind in "fc":
            is_nan = np.isnan(part)
            nan += int(is_nan.sum())
            part = part[~is_nan]
        if not part.size or part.dtype.kind == "c":
            continue
        low, high = part.min(), part.max()
        least, most = low if least is None else min(least, low), high if most is None else max(most, high)
        numbers += part.size
        with np.errstate(all="ignore"):
            total += float(part.sum(dtype="f8"))
    mean = _number(np.float64(total / numbers)) if numbers else None
    return Figures(_number(least), mean, _number(most), nan)


def _number(value: Any) -> Any:
    """A value of NumPy for JSON: what is not finite is a text, as in the API."""
    if value is None:
        return None
    (found,) = values.plain(np.asarray(value).reshape(1))
    return json_number(found)


def json_number(value: Any) -> Any:
    """A number that strict JSON takes: a text for one that is not finite, a pair for a complex one."""
    if isinstance(value, complex):
        return [json_number(value.real), json_number(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _first(tensor: Tensor) -> tuple[list[list[Any]], list[int], str]:
    """Rows of the first elements, the label of each, and what of the tensor they are, in words."""
    shape = tensor.shape
    if len(shape) < 2:
        length = math.prod(shape)
        flat = [json_number(one) for one in values.plain(values.array(tensor, SIDE * SIDE))]
        labels = list(range(0, len(flat), SIDE))
        shown = "" if length <= SIDE * SIDE else f"the first {SIDE * SIDE} of {length}"
        return [flat[at : at + SIDE] for at in labels], labels, shown
    height, width = shape[-2:]
    part = values.array(tensor, min(height, SIDE) * width).reshape(-1, width)[:SIDE, :SIDE]
    rows = [[json_number(one) for one in values.plain(row)] for row in part]
    cut = f"{part.shape[0]} × {part.shape[1]} of {height} × {width}" if max(height, width) > SIDE else ""
    place = f"at [{', '.join('0' for _ in shape[:-2])}]" if math.prod(shape[:-2]) > 1 else ""
    return rows, list(range(len(rows))), f"{cut} {place}".strip()


def _texts(number: int, tensor: Tensor, count: int) -> list[Text]:
    found, pictures = [], 0
    for at, item in enumerate(islice(values.strings(tensor), MOST_TEXTS)):
        kind = images.kind_of(item) if count <= _FEW else ""
        is_shown = bool(kind) and len(item) <= images.MOST_BYTES and pictures < MOST_IMAGES
        pictures += is_shown
        found.append(_text(item, kind, f"{number}-{at}" if is_shown else ""))
    return found


def _text(item: bytes, kind: str, place: str) -> Text:
    size = len(item)
    if kind:
        return Text("", size, is_text=False, image=place, kind=kind)
    try:
        text = item.decode()
    except UnicodeDecodeError:
        hidden = max(0, size - _MOST_BYTES_SHOWN)
        return Text(item[:_MOST_BYTES_SHOWN].hex(" "), size, hidden, is_text=False)
    tree = folding.tree(text)
    return Text(text[:MOST_LETTERS], size, max(0, len(text) - MOST_LETTERS), tree=tree)
