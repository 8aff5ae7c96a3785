"""What a runner's sandbox shall do and what holds of it: the types that supervisor and runner exchange."""

from typing import Annotated, Literal

import msgspec

Mode = Literal["strict", "auto", "off"]


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox shall do.

    mode: ``auto`` uses what the kernel has, ``strict`` refuses to run without all of it, ``off``.
    user: the runner's own, empty = the worker's. model_folders: models are read below these only;
    empty = reading is not restricted. Models lie in folders that exist when the runner starts.
    """

    mode: Mode = "auto"
    user: str = ""
    model_folders: tuple[Annotated[str, msgspec.Meta(pattern="^/")], ...] = ()

    def argument(self) -> str:
        """The confinement as one argument of the runner's command line."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def of_argument(text: str) -> "Sandbox":
        """The inverse; empty text = the defaults. Raises :class:`msgspec.MsgspecError`."""
        return msgspec.json.decode(text, type=Sandbox) if text else Sandbox()


class Confinement(msgspec.Struct, frozen=True, array_like=True):
    """What holds. active: layers in force, tried out. missing: layer to the reason it is not in force."""

    mode: str = "off"
    active: tuple[str, ...] = ()
    missing: dict[str, str] = {}

    def __str__(self) -> str:
        """The report as text for a person."""
        lines = [f"sandbox of the runner: {self.mode}"]
        lines += [f"  active   {layer}" for layer in self.active]
        lines += [f"  MISSING  {layer}: {why}" for layer, why in self.missing.items()]
        return "\n".join(lines)
