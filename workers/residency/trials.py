"""Has the runner try whether requests of a version may be joined, once for each version whose model asks for it.

Whatever comes of a trial is known then, also that the runner died of it: it breaks no load twice and does not repeat.
"""

from itertools import islice
from typing import Final

from msgspec.structs import replace

from signalbox.program import log
from signalbox.program.errors import DeadlineExceeded, LeaseLost, NotFound, RunnerCrashed, SignalboxError, Unavailable
from signalbox.wire.modeldocs import Model, Version
from signalbox.wire.workerdocs import Joining
from workers.residency.activity import Activity
from workers.runner.errortext import without_paths
from workers.runner.frames import JoiningTried
from workers.runner.link import RunnerLink
from workers.runner.wire import RunnerLost
from workers.statistics.joinings import Joinings

TRIAL_S: Final = 60.0
"""No run of a trial begins later."""
_MOST_TEXT: Final = 600
_MOST_SIGNATURES: Final = 64
"""Of a version, whose requests are joined: presence has a bound."""
_MOST_NAME: Final = 200


class Trials:
    """The trials of one hold."""

    def __init__(self, runner: RunnerLink, joinings: Joinings, activity: Activity) -> None:
        self._runner = runner
        self._joinings = joinings
        self._activity = activity

    def is_due(self, model: Model | None, version: Version | None) -> bool:
        """Whether joined requests of a version are to be tried."""
        return model is not None and version is not None and self._joinings.is_due(model, version)

    def retry_untried(self, model: str) -> None:
        """Try again what could not be tried of a model (:meth:`workers.statistics.joinings.Joinings.retry_untried`)."""
        self._joinings.retry_untried(model)

    async def run(self, model: Model, version: Version) -> None:
        """Try a version that is loaded, beside runs. Raises :class:`RunnerLost` where the process has died."""
        key = (model.name, version.version)
        died = ""
        try:
            with self._activity.loading(key, is_beside=True, is_trial=True):
                answer = await self._runner.try_joining(
                    *key, seconds=TRIAL_S, timeout_s=TRIAL_S + model.limits.timeout_s
                )
            found = self._found(key, answer)
        except (RunnerLost, LeaseLost, NotFound, Unavailable):  # nothing is known of this version
            raise
        except (RunnerCrashed, DeadlineExceeded) as error:
            died = "The runner died" if isinstance(error, RunnerCrashed) else "A run did not end in time"
            found = Joining(untried=f"{died} while joined requests were tried.")
        except SignalboxError as error:
            found = Joining(untried=error.public_message[:_MOST_TEXT])
        self._joinings.note(key, replace(found, digest=version.digest))
        log.info(
            "model.joining_tried",
            model=key[0],
            version=key[1],
            joined=len(found.joined),
            differs=found.differs,
            untried=found.untried,
        )
        if died:
            raise RunnerLost(died)

    def _found(self, key: tuple[str, int], answer: JoiningTried) -> Joining:
        """What the runner found, as far as it is to be believed: it may be a hostile model's."""
        loaded = self._runner.loaded.get(key)
        known = loaded.signatures if loaded is not None else {}
        names = (name for name in answer.joined if name in known and len(name) <= _MOST_NAME)
        return Joining(
            joined=() if answer.differs else tuple(islice(names, _MOST_SIGNATURES)),
            differs=without_paths(answer.differs[:_MOST_TEXT]),
            untried=without_paths(answer.untried[:_MOST_TEXT]),
        )
