"""A default or a label that is split: part of its requests get another version, the candidate. Pure.

A caller stays on its side: that is a hash of its key's public id, or of a header's value, so it is the same at every
gateway, and whoever gets the candidate at one weight gets it at every higher one.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec

HEADER_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?", re.ASCII)

TOLERANCE: Final = 1e-4


class Split(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """target: the label, empty = the default; the version that it names is the other side.

    weight: of the callers' hashes, 0 to 1, that get ``candidate``. header: its value is hashed, by its canonical name;
    empty, or in a request without it: the key's public id. halted: why the controller has rolled it back; the weight is
    0 then, and it stays until an operator has seen it. shadow: part of the batches of the other version, 0 to 1, that
    workers run on the candidate too once they are committed, and compare within ``tolerance``, relative to a number.
    since: when the split began. differs: why the candidate's outputs count as unlike the other version's.
    """

    target: str = ""
    candidate: int
    weight: float
    header: str = ""
    halted: str = ""
    shadow: float = 0.0
    tolerance: float = TOLERANCE
    since: float = 0.0
    differs: str = ""


def gets_candidate(split: Split, model: str, key_id: str, headers: Mapping[str, str]) -> bool:
    """Whether a request is on the candidate's side. headers: by canonical names."""
    value = headers.get(split.header) if split.header else None
    who = f"key {key_id}" if value is None else f"header {value}"
    # Of each rollout other callers are the first.
    text = f"{model}\0{split.target}\0{split.candidate}\0{who}"
    place = int.from_bytes(blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest())
    return place < split.weight * 2**64


def canonical(header: str) -> str:
    """A header's name as gateways have it: Go's canonical form."""
    return "-".join(part.capitalize() for part in header.split("-"))
