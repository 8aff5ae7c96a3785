"""What is wanted of the fleet and what there is, for pages and programs."""

from collections.abc import Collection
from typing import Final, NamedTuple

from console.board.capacity import Devices
from console.catalog.models import ServedModel
from console.feed.running import running
from console.feed.scaling import Sample
from console.fleet import serving
from signalbox.program.errors import Unavailable
from signalbox.wire.access import is_among
from signalbox.wire.scaling import Scale

_WIDTH: Final = 900
_HEIGHT: Final = 160
_MOST_MODELS: Final = 500
_MINUTES_FROM_S: Final = 120.0


class ClassRow(NamedTuple):
    """Devices of one class: that shall have workers, were asked for, have one, and are there. most: 0 = all."""

    name: str
    wanted: int
    asked: int
    actual: int
    there: int
    most: int
    reason: str


class ModelRow(NamedTuple):
    """A model that scales by itself. wanted: replicas. needed: devices that workers are kept for. ready: None = not
    known."""

    name: str
    least: int
    most: int
    wanted: int
    needed: int
    ready: int | None
    reason: str


class Picture(NamedTuple):
    """Lines of an SVG of 900 by 160, of the last quarter of an hour at most. most: devices at its top."""

    wanted: str
    actual: str
    most: int
    span_s: float

    @property
    def since(self) -> str:
        """How long ago it begins."""
        return f"{self.span_s:.0f} s" if self.span_s < _MINUTES_FROM_S else f"{self.span_s / 60:.0f} min"


class Standing(NamedTuple):
    """Everything. is_on: else each device of a host has workers."""

    is_on: bool
    classes: list[ClassRow]
    models: list[ModelRow]
    picture: Picture | None


def standing(only: Collection[str] = ()) -> Standing:
    """How it is now. only: models that the caller may see; empty = all. Raises :class:`Unavailable` without NATS."""
    feed = running.feed
    if feed is None or feed.is_blind:
        raise Unavailable("NATS is away: what is wanted of the fleet is not known now.", retry_after_s=5.0)
    scale, devices = feed.scaling.scale, feed.scaling.devices()
    scaled = ServedModel.objects.filter(autoscale=True)[:_MOST_MODELS]
    models = [_model(model, scale or Scale()) for model in scaled if not only or is_among(only, model.name)]
    return Standing(scale is not None, _classes(scale, devices), models, picture(list(feed.scaling.history)))


def of_model(model: ServedModel) -> ModelRow | None:
    """How one stands; None where it does not scale by itself, and without NATS."""
    feed = running.feed
    if not model.autoscale or feed is None or feed.is_blind:
        return None
    return _model(model, feed.scaling.scale or Scale())


def _classes(scale: Scale | None, devices: Devices) -> list[ClassRow]:
    rows = []
    for name in dict.fromkeys([*(scale.classes if scale is not None else ()), *devices.there]):
        there, actual = devices.there.get(name, 0), devices.actual.get(name, 0)
        one = scale.classes.get(name) if scale is not None else None
        if one is not None:
            rows.append(ClassRow(name, one.wanted, one.asked, actual, there, one.most, one.reason))
        elif scale is None:
            rows.append(ClassRow(name, there, there, actual, there, 0, "nothing scales: each device has workers"))
    return rows


def _model(model: ServedModel, scale: Scale) -> ModelRow:
    found = scale.models.get(model.name)
    reason = found.reason if found is not None else "not decided yet; does the controller run?"
    if not model.replicas:
        reason = "an operator has set its replicas to 0"
    return ModelRow(
        name=model.name,
        least=model.autoscale_min,
        most=model.autoscale_max,
        wanted=found.wanted if found is not None else model.replicas,
        needed=found.needed if found is not None else 0,
        ready=serving.ready(model),
        reason=reason,
    )


def picture(history: list[Sample]) -> Picture | None:
    """Steps of what was wanted and what there was; None where there is nothing to show yet."""
    if len(history) < 2:
        return None
    begin, end = history[0].at, history[-1].at
    most = max(1, *(max(one.wanted, one.actual) for one in history))

    def line(figures: list[int]) -> str:
        points: list[str] = []
        last: float | None = None
        for sample, figure in zip(history, figures, strict=True):
            x = (sample.at - begin) / (end - begin) * _WIDTH
            y = _HEIGHT - figure / most * (_HEIGHT - 8) - 4
            points += [f"{x:.1f},{last:.1f}"] if last is not None and last != y else []
            points.append(f"{x:.1f},{y:.1f}")
            last = y
        return " ".join(points)

    wanted, actual = line([one.wanted for one in history]), line([one.actual for one in history])
    return Picture(wanted, actual, most, end - begin)
