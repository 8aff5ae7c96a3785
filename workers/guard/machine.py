"""The guard as a state machine: events in, effects out, time passed in. No I/O, no clock.

The guard's process (:mod:`workers.guard.process`) carries the effects out on a real flock and a real runner,
the simulation on modelled ones. It imports nothing, as the guard must stay tiny.

Events, by name and numbers: the supervisor's orders ``spawn``, ``lock hold``, ``unlock``, ``enter token
deadline``, ``deadline at``, ``leave``, ``kill``, ``fence``, and ``hung_up``; of the flock ``taken
stored-token``, ``busy``, ``replaced``; of the disk ``stored token``; of the runner ``spawned pid``,
``in token``, ``left``, ``mute`` (its socket is closed), ``died pid status``; ``timer``;
and ``refused errno`` when the last effect could not be carried out. Times are CLOCK_BOOTTIME in ns.
"""

Effect = tuple[str, int | str]
"""A verb and its object: ``tell`` a text to the supervisor, ``say`` a word to the runner, ``arm`` the
timer (0 disarms), ``store`` a token; with an object that says nothing: ``fork`` a runner, ``kill`` it and
all of its group, ``try`` the flock, ``wait`` for it beside everything else, ``unwait``, ``unlock``,
``reopen`` the lock file (closing the old description frees the flock, unless an unknown process
inherited it: then that one keeps it), and ``exit``."""

LEAVE_NS = 1_000_000_000
"""How long a kept runner may take to step out."""
_WORDS = frozenset({"spawn", "lock", "unlock", "enter", "deadline", "leave", "kill", "fence"})


class GuardMachine:
    """State of one guard. At most one runner, one wait for the flock and one ending are in flight.

    runner: its pid. token: the highest it was let in under; 0 while it is outside. hold_ns: how long the
    flock is kept for a supervisor that is silent; otherwise a frozen one keeps the device from
    all other workers. ending: what to do when the runner is dead: ``left``, ``fenced <is-deadline>``,
    ``unlocked`` or ``exit``.
    """

    __slots__ = (
        "_asked",
        "_out",
        "deadline_ns",
        "ending",
        "floor",
        "hold_ns",
        "is_kept",
        "is_locked",
        "is_waiting",
        "runner",
        "token",
        "verb",
    )

    def __init__(self, is_kept: bool) -> None:
        self.is_kept = is_kept
        self.is_locked = self.is_waiting = False
        self.runner = self.token = self.floor = self.deadline_ns = 0
        self.hold_ns = 0
        self.ending = self.verb = ""
        self._asked = (0, 0)
        self._out: list[Effect] = []

    def on(self, event: str, *numbers: int, now_ns: int) -> list[Effect]:
        """Take ``event`` in and return the effects to carry out, in order."""
        self._out = []
        if event in _WORDS:
            self.verb = event
        getattr(self, f"_on_{event}")(now_ns, *numbers)
        return self._out

    def _do(self, verb: str, what: int | str = 0) -> None:
        self._out.append((verb, what))

    # -- the supervisor's words ----------------------------------------------------------------------

    def _on_spawn(self, _: int) -> None:
        if self.runner:
            self._do("tell", f"spawned {self.runner}")
        else:
            self._do("fork")

    def _on_lock(self, now_ns: int, hold_ns: int = 0) -> None:
        """Take the flock, at once or as soon as it is free; release it if no order follows for ``hold_ns``."""
        self.hold_ns = hold_ns
        if self.is_locked:
            self._do("tell", f"locked {self.floor}")
            self._bound_hold(now_ns)
        elif not self.is_waiting:
            self._do("try")

    def _on_unlock(self, _: int) -> None:
        """Release the flock, or stop waiting for it; the runner is outside, or has died since it entered.

        A new runner is ended too: it shares the description of one that was inside.
        """
        if self.token and not self.ending:
            self._end("unlocked")
            return
        if not self.token:
            self._release_flock()
        self._do("tell", "unlocked")

    def _on_enter(self, now_ns: int, token: int, deadline_ns: int) -> None:
        """Let the runner enter under ``token``, once the token is on disk; no deadline = the old one."""
        if not self.is_locked or not self.runner or self.ending:
            self._do("tell", "error enter 11")
            return
        self._asked = (token, deadline_ns)
        if token == self.token:
            self._let_in(now_ns)
        else:
            self._do("store", token)

    def _on_stored(self, now_ns: int, token: int) -> None:
        self.floor = max(self.floor, token)
        self._let_in(now_ns)

    def _let_in(self, now_ns: int) -> None:
        """Let the runner enter, unless the lease has ended while the guard was stopped or the disk slow."""
        token, deadline_ns = self._asked
        if deadline_ns and deadline_ns <= now_ns:
            self._give_back("fenced 1")
            return
        self.token = token
        if deadline_ns:
            self._set_deadline(deadline_ns)
        self._do("say", f"enter {token}")

    def _on_deadline(self, _: int, at_ns: int) -> None:
        """Note until when the lease is valid; the answer shows that the guard is alive."""
        if (self.token or self.is_locked) and not self.ending:
            self._set_deadline(at_ns)
        self._do("tell", f"pong {at_ns}")

    def _set_deadline(self, at_ns: int) -> None:
        self.deadline_ns = at_ns
        self._do("arm", at_ns)

    def _on_leave(self, now_ns: int) -> None:
        """Give the device up: a kept runner leaves it, any other is ended."""
        if self.is_kept and self.runner and self.token and not self.ending:
            self.ending = "left"  # also if it dies while it leaves
            self._do("say", "leave")
            patience_ns = now_ns + LEAVE_NS
            self._set_deadline(min(patience_ns, self.deadline_ns or patience_ns))
        else:
            self._give_back("left")

    def _on_kill(self, _: int) -> None:
        """End the runner and keep the flock: its supervisor starts another."""
        if self.runner:
            self._do("kill")

    def _on_fence(self, _: int) -> None:
        """End the runner and release the flock."""
        self._give_back("fenced 0")

    def _on_hung_up(self, _: int) -> None:
        self._end("exit")

    def _give_back(self, word: str) -> None:
        """Free the flock: a runner that was never let in may live on, any other must die first."""
        if self.token or self.ending:
            self._end(word)
        else:
            self._release_flock()
            self._do("tell", word)

    # -- the flock -----------------------------------------------------------------------------------

    def _on_taken(self, now_ns: int, stored: int) -> None:
        self.is_waiting, self.is_locked, self.floor = False, True, stored
        self._do("tell", f"locked {stored}")
        self._bound_hold(now_ns)

    def _bound_hold(self, now_ns: int) -> None:
        if self.hold_ns and not self.token and not self.ending:
            self._set_deadline(now_ns + self.hold_ns)

    def _on_busy(self, _: int) -> None:
        self.is_waiting = True
        self._do("tell", "busy")
        self._do("wait")

    def _on_replaced(self, _: int) -> None:
        """Take the flock anew, as the lock file was replaced since it was opened: the old one excludes no process."""
        self.is_waiting = False
        self._do("tell", "replaced")
        self._end("unlocked")  # a runner that shares the old description must go too

    def _on_unwaited(self, _: int) -> None:
        """Wait for the flock anew, as the child that waited for it was killed."""
        self.is_waiting = False

    def _release_flock(self) -> None:
        """Unlock, also where the wait for it ended a moment ago unnoticed."""
        self._end_wait()
        if self.deadline_ns:
            self._set_deadline(0)
        self._do("unlock")
        self.is_locked = False

    def _end_wait(self) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self._do("unwait")

    # -- the runner ----------------------------------------------------------------------------------

    def _on_spawned(self, _: int, pid: int) -> None:
        self.runner = pid
        self._do("tell", f"spawned {pid}")

    def _on_in(self, _: int, token: int) -> None:
        self._do("tell", f"entered {token}")

    def _on_left(self, _: int) -> None:
        self._set_deadline(0)
        self.token = 0
        self.ending = "" if self.ending == "left" else self.ending
        self._release_flock()
        self._do("tell", "left")

    def _on_mute(self, now_ns: int) -> None:
        self._on_kill(now_ns)

    def _on_died(self, _: int, pid: int, status: int) -> None:
        """Do what was waiting for its death."""
        self.runner = 0
        self._do("tell", f"died {pid} {status}")
        if self.ending:
            self._finish()

    def _on_timer(self, now_ns: int) -> None:
        """End the runner, as the deadline has passed: no order of the supervisor can change that."""
        if self.deadline_ns and now_ns >= self.deadline_ns:
            self.deadline_ns = 0
            self._give_back("fenced 1")

    def _on_refused(self, _: int, errno: int) -> None:
        self._do("tell", f"error {self.verb} {errno}")

    def _end(self, ending: str) -> None:
        """Kill the runner; what ``ending`` says follows when it is dead."""
        if self.ending != "exit":
            self.ending = ending
        self._set_deadline(0)
        if self.runner:
            self._do("kill")
        else:
            self._finish()

    def _finish(self) -> None:
        """Release the flock or end, as the runner is dead."""
        if self.ending == "exit":
            self._do("exit")
            return
        ending, self.ending = self.ending, ""
        self.token = 0
        self._end_wait()
        self._do("reopen")
        self.is_locked = False
        self._do("tell", ending)
