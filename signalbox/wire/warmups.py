"""Requests that a worker makes up and runs after a load, before the version is ready."""

import msgspec


class WarmUpInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """shape: all sizes, the rows among them. is_random: else zeros; strings are empty either way."""

    dtype: str
    shape: tuple[int, ...]
    is_random: bool = False


class WarmUp(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for ``serving_default``, run ``count`` times. name: for those who read of it."""

    name: str
    inputs: dict[str, WarmUpInput]
    count: int = 1
