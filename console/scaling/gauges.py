"""What is wanted of the fleet and what there is, for Prometheus: told by the one controller that decides."""

from typing import Final

from signalbox.program import metrics
from signalbox.wire.scaling import Scale

ASKED: Final = metrics.gauge(
    "scaling_devices_asked",
    "Devices of a class that models ask for, whatever its bound is and however many there are.",
    "class",
)
WANTED: Final = metrics.gauge(
    "scaling_devices_wanted",
    "Devices of a class that shall have workers: of those asked for, as many as the bound allows and there are.",
    "class",
)
ACTUAL: Final = metrics.gauge("scaling_devices_actual", "Devices of a class that have workers.", "class")


_shown: set[str] = set()


def show(scale: Scale) -> None:
    """Set all that was decided. Series of classes that are gone end; no other is away for a moment."""
    for name in _shown - scale.classes.keys():
        _shown.discard(name)
        for gauge in (ASKED, WANTED, ACTUAL):
            gauge.remove(name)
    _shown.update(scale.classes)
    for name, one in scale.classes.items():
        for gauge, devices in ((ASKED, one.asked), (WANTED, one.wanted), (ACTUAL, one.actual)):
            gauge.labels(name).set(devices)


def clear() -> None:
    """Another controller decides from now on, or nothing scales."""
    _shown.clear()
    for gauge in (ASKED, WANTED, ACTUAL):
        gauge.clear()
