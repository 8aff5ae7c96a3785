"""JSON in a text as a tree that a page folds: bounded in size, depth and number of its nodes."""

import json
from dataclasses import dataclass, field
from typing import Any, Final

MOST_LETTERS: Final = 256 * 1024
"""Longest text that is looked at."""
MOST_NODES: Final = 500
MOST_DEPTH: Final = 8
_MOST_SHOWN: Final = 300
"""Letters of one text."""


@dataclass
class Node:
    """One value. name: of it in its object, or its place in its list. text: of one that is neither.

    left_out: members that are not shown.
    """

    name: str
    text: str = ""
    what: str = ""
    members: list["Node"] = field(default_factory=list)
    left_out: int = 0


def tree(text: str) -> Node | None:
    """The tree of an object or a list; None for what is no JSON, or too large. Whole numbers are exact."""
    if len(text) > MOST_LETTERS or text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    left = [MOST_NODES]
    return _node("", found, 0, left)


def _node(name: str, value: Any, depth: int, left: list[int]) -> Node:
    left[0] -= 1
    if not isinstance(value, dict | list):
        return Node(name, text=_shown(value))
    is_object = isinstance(value, dict)
    node = Node(name, what=f"{{{len(value)}}}" if is_object else f"[{len(value)}]")
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for number, (key, member) in enumerate(members):
        if left[0] <= 0 or depth + 1 >= MOST_DEPTH:
            node.left_out = len(value) - number
            break
        node.members.append(_node(_cut(str(key)), member, depth + 1, left))
    return node


def _shown(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    text = text.encode(errors="replace").decode()  # JSON may have halves of pairs, which no page can hold
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… {len(text) - _MOST_SHOWN} more"
