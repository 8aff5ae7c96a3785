"""What the scripts of all clients share: they read where to call and with which key, take steps, and print the results.

A script runs in its client's environment, so this needs the standard library and numpy alone.
"""

import asyncio
import contextlib
import hashlib
import inspect
import io
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final, NamedTuple

WRONG_KEY: Final = "sbx_live_wrong"
INLINE_BYTES: Final = 1024
"""Largest tensor that is printed whole; of a larger one its hash is."""


class Target(NamedTuple):
    """http, grpc: ``host:port``. key: an API key that may do everything. program: that of ``docs/clients.md``."""

    http: str
    grpc: str
    key: str
    program: str

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    @property
    def headers(self) -> dict[str, str]:
        """A fresh dict: some clients write into what they are given."""
        return {"Authorization": f"Bearer {self.key}"}

    @property
    def metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self.key}")]


def take(module: str) -> None:
    """Take a script's steps and print one line of JSON: the result of each by its name, or ``{"raised": ...}``.

    Its steps are its functions whose names begin with no underscore, in their order, and ``documented``.
    """
    target = Target(**json.load(sys.stdin))
    functions = {name: step for name, step in vars(sys.modules[module]).items() if inspect.isfunction(step)}
    steps: dict[str, Callable[[Target], Any]] = {
        name: step for name, step in functions.items() if step.__module__ == module and not name.startswith("_")
    }
    results: dict[str, Any] = {}
    for name, step in {**steps, "documented": _documented}.items():
        try:
            result = step(target)
            results[name] = asyncio.run(result) if inspect.iscoroutine(result) else result
        except Exception as error:  # noqa: BLE001  the other steps are still of interest
            traceback.print_exc()
            results[name] = {"raised": f"{type(error).__name__}: {error}"}
    print("\n" + json.dumps(results))


def _documented(target: Target) -> str:
    """What the documentation's program prints; where to call and the key are ours."""
    lines = [line for line in target.program.splitlines() if not line.startswith(("FRONT =", "GRPC =", "KEY ="))]
    names = {"FRONT": target.http, "GRPC": target.grpc, "KEY": target.key}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec("\n".join(lines), names)  # noqa: S102  the page's own program, which is to run as it stands
    return printed.getvalue()


def tensor(array: Any) -> dict[str, Any]:
    """A numpy array as JSON that keeps every bit: dtype, shape, and its little-endian bytes in hexadecimal.

    Strings (dtype object: bytes or str, the latter as UTF-8) are a list of such. A large array has its bytes' SHA-256.
    """
    found = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.dtype == object:
        elements = [one.encode() if isinstance(one, str) else one for one in array.ravel().tolist()]
        return {**found, "data": [one.hex() for one in elements]}
    data: bytes = array.tobytes()
    if len(data) > INLINE_BYTES:
        return {**found, "sha256": hashlib.sha256(data).hexdigest()}
    return {**found, "data": data.hex()}
