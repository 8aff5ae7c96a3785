"""The guard: a tiny process between supervisor and runner that holds the device's flock.

Started with ``python -I -S``; standard library only, so that it stays small and contains nothing that
could block it. It keeps three promises whatever its supervisor does:

* the flock is held by one open file description that guard and runner share, so it is free only
  when both (and every process that inherited it) are gone, or the runner has said that it left;
* the runner is dead soon after the deadline last confirmed has passed on CLOCK_BOOTTIME, which
  counts on through a suspend and knows no steps;
* the runner does not outlive the supervisor or the guard.

It exchanges short ASCII messages over a SOCK_SEQPACKET pair: verbs and integers. :mod:`workers.guard.machine`
decides; this module carries it out.
"""

import ctypes
import fcntl
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from workers.guard.machine import GuardMachine

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
CLOCK_BOOTTIME, TFD_TIMER_ABSTIME = 7, 1
TOKEN_BYTES = 21
libc = ctypes.CDLL(None, use_errno=True)


class Timer:
    """A timerfd on CLOCK_BOOTTIME, absolute, so that a suspended machine wakes up past its deadline."""

    def __init__(self) -> None:
        self.fd = libc.timerfd_create(CLOCK_BOOTTIME, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def arm(self, at_ns: int) -> None:
        """Fire at ``at_ns``; 0 disarms."""
        spec = (ctypes.c_long * 4)(0, 0, at_ns // 1_000_000_000, at_ns % 1_000_000_000)
        if libc.timerfd_settime(self.fd, TFD_TIMER_ABSTIME, spec, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def clear(self) -> None:
        """Clear the timer after it has fired."""
        with suppress(BlockingIOError):
            os.read(self.fd, 8)


class Guard:
    """Carries out what the machine decides, on one flock, one runner and one supervisor."""

    def __init__(self, control: socket.socket, path: str, is_kept: bool, argv: list[str]) -> None:
        self.machine = GuardMachine(is_kept)
        self.control, self.path, self.argv = control, path, argv
        self.lock_fd = self.open_lock()
        self.runner, self.runner_pidfd = 0, -1
        self.words: socket.socket | None = None
        self.handed: list[int] = []
        self.waiter, self.waiter_pidfd = 0, -1
        self.timer = Timer()
        self.poll = select.poll()
        self.handlers: dict[int, Callable[[], None]] = {}
        self.watch(control.fileno(), self.on_control)
        self.watch(self.timer.fd, self.on_timer)
        # A signal's handler must not reach into the machine in the middle of a decision.
        self.end_asked, wakeup_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup_fd)
        self.watch(self.end_asked, self.on_signal)

    def open_lock(self) -> int:
        """A new open file description of the lock file; the runner will share it, and must not write."""
        return os.open(self.path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o660)

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        """Call ``handler`` whenever ``fd`` can be read."""
        self.handlers[fd] = handler
        self.poll.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        """Forget ``fd`` and close it."""
        del self.handlers[fd]
        self.poll.unregister(fd)
        os.close(fd)

    def serve(self) -> None:
        """Serve until the supervisor and the runner have ended."""
        while True:
            for fd, _ in self.poll.poll():
                if fd in self.handlers:
                    self.handlers[fd]()

    # -- what happens --------------------------------------------------------------------------------

    def feed(self, event: str, *numbers: int) -> None:
        """Give the machine one event and carry out what it decides, in order."""
        for verb, what in self.machine.on(event, *numbers, now_ns=now_ns()):
            _EFFECTS[verb](self, what)

    def on_control(self) -> None:
        """Read an order of the supervisor, or notice its end."""
        try:
            data, self.handed, _, _ = socket.recv_fds(self.control, 4096, 2)
        except OSError:
            data = b""
        if not data:
            self.unwatch(self.control.detach())
            self.feed("hung_up")
            return
        verb, *words = data.decode().split()
        self.feed(verb, *(int(word) for word in words))
        while self.handed:
            os.close(self.handed.pop())

    def on_signal(self) -> None:
        """End on SIGTERM: the supervisor has died, or another process asks for it."""
        os.read(self.end_asked, 64)
        self.feed("hung_up")

    def on_report(self) -> None:
        """Read a report of the runner: ``in <token>`` or ``left``."""
        if self.words is None:
            return
        try:
            word = self.words.recv(256).decode()
        except OSError:
            word = ""
        if not word:
            self.unwatch(self.words.detach())
            self.words = None
            self.feed("mute")
        elif word == "left":
            self.feed("left")
        else:
            self.feed("in", int(word.split()[1]))

    def on_timer(self) -> None:
        """Tell the machine that the time it asked for has come."""
        self.timer.clear()
        self.feed("timer")

    def on_waiter(self) -> None:
        """Notice the end of the waiting child: it has taken the flock for this process, or was killed."""
        self.unwatch(self.waiter_pidfd)
        _, status = os.waitpid(self.waiter, 0)
        self.waiter = 0
        if status == 0:
            self.report_taken()
        else:
            self.feed("unwaited")

    def report_taken(self) -> None:
        """Whether the lock file was replaced since it was opened: then this flock excludes no other process."""
        try:
            there = os.stat(self.path)  # noqa: PTH116  see sweep
            here = os.fstat(self.lock_fd)
            is_same = (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev)
        except FileNotFoundError:
            is_same = False
        if is_same:
            text = os.pread(self.lock_fd, TOKEN_BYTES, 0).strip()
            self.feed("taken", int(text) if text.isdigit() else 0)
        else:
            self.feed("replaced")

    def on_runner_died(self) -> None:
        """Reap it and what it left."""
        pid, status = os.waitpid(self.runner, 0)
        self.unwatch(self.runner_pidfd)
        if self.words is not None:
            self.unwatch(self.words.detach())
            self.words = None
        self.runner = 0
        self.sweep()
        self.feed("died", pid, os.waitstatus_to_exitcode(status))

    def sweep(self) -> None:
        """End what the runner had started: as subreaper this process is the parent of its orphans."""
        path = f"/proc/self/task/{os.getpid()}/children"
        while True:
            with open(path) as file:  # noqa: PTH123  pathlib would double this process
                orphans = [int(pid) for pid in file.read().split() if int(pid) != self.waiter]
            if not orphans:
                return
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    # -- what is to be done --------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        """Send a report without blocking: a supervisor that does not read for so long is taken for dead."""
        try:
            self.control.send(text.encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            self.feed("hung_up")

    def say(self, word: str) -> None:
        """Send the runner an order; a runner that cannot be reached is ended."""
        if self.words is None:
            return
        try:
            self.words.send(word.encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            self.feed("mute")

    def fork(self, _: object) -> None:
        """Start a runner that inherits the flock, and two sockets to its supervisor: for data, and for its beats."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        guard = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self.feed("refused", error.errno or 0)
            return
        if pid == 0:
            try:
                fds = (*self.handed, theirs.fileno(), self.lock_fd)
                die_with_parent(signal.SIGKILL, guard)
                libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                os.setpgid(0, 0)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                prefer_for_oom("500")
                for fd in fds:
                    os.set_inheritable(fd, True)
                os.execv(self.argv[0], [*self.argv, *map(str, fds)])
            finally:
                os._exit(127)
        with suppress(OSError):  # the child was faster
            os.setpgid(pid, pid)
        theirs.close()
        self.runner, self.runner_pidfd, self.words = pid, os.pidfd_open(pid), ours
        self.watch(self.runner_pidfd, self.on_runner_died)
        self.watch(ours.fileno(), self.on_report)
        self.feed("spawned", pid)

    def try_lock(self, _: object) -> None:
        """Take the flock if it is free now."""
        try:
            fcntl.flock(self.lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.feed("busy")
        else:
            self.report_taken()

    def wait_for_lock(self, _: object) -> None:
        """Let a child wait: a flock belongs to the description that both share."""
        guard = os.getpid()
        try:
            self.waiter = os.fork()
        except OSError as error:
            self.feed("unwaited")
            self.feed("refused", error.errno or 0)
            return
        if self.waiter == 0:
            try:
                die_with_parent(signal.SIGKILL, guard)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                fcntl.flock(self.lock_fd, fcntl.LOCK_EX)  # of the description that both share
                os._exit(0)
            finally:
                os._exit(1)
        self.waiter_pidfd = os.pidfd_open(self.waiter)
        self.watch(self.waiter_pidfd, self.on_waiter)

    def end_waiter(self, _: object) -> None:
        """End the child that waits for the flock."""
        if self.waiter:
            os.kill(self.waiter, signal.SIGKILL)
            self.unwatch(self.waiter_pidfd)
            os.waitpid(self.waiter, 0)
            self.waiter = 0

    def unlock(self, _: object) -> None:
        """Free the flock and keep the description, which a runner outside shares."""
        fcntl.flock(self.lock_fd, fcntl.LOCK_UN)

    def reopen(self, _: object) -> None:
        """Free the flock by closing it, so that an unknown process that inherited it keeps it."""
        os.close(self.lock_fd)
        self.lock_fd = self.open_lock()

    def store(self, token: int) -> None:
        """The highest token that has ever entered under this lock file, as stored in it."""
        try:
            fd = os.open(f"/proc/self/fd/{self.lock_fd}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(fd, b"%020d\n" % token, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            self.feed("refused", error.errno or 0)
        else:
            self.feed("stored", token)

    def kill(self, _: object) -> None:
        """SIGKILL to the runner's whole group."""
        if self.runner:
            try:
                os.killpg(self.runner, signal.SIGKILL)
            except OSError:
                signal.pidfd_send_signal(self.runner_pidfd, signal.SIGKILL)


_EFFECTS: dict[str, Callable[..., None]] = {
    "tell": Guard.tell,
    "say": Guard.say,
    "arm": lambda guard, at_ns: guard.timer.arm(at_ns),
    "store": Guard.store,
    "fork": Guard.fork,
    "kill": Guard.kill,
    "try": Guard.try_lock,
    "wait": Guard.wait_for_lock,
    "unwait": Guard.end_waiter,
    "unlock": Guard.unlock,
    "reopen": Guard.reopen,
    "exit": lambda *_: os._exit(0),
}


def now_ns() -> int:
    """CLOCK_BOOTTIME in ns: it counts through a suspend and makes no steps."""
    return time.clock_gettime_ns(CLOCK_BOOTTIME)


def die_with_parent(signum: int, parent: int) -> None:
    """Get ``signum`` when the parent ends; end at once if it has ended before this call."""
    libc.prctl(PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def prefer_for_oom(score: str) -> None:
    """The runner is what the kernel should kill when memory runs out, the guard the last thing."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123  see sweep
            file.write(score)
    except OSError:
        pass  # lowering it needs a privilege that a container may not have


def main() -> None:
    """Arguments: ``CONTROL_FD PARENT_PID LOCK_PATH KEPT RUNNER_ARGV...``."""
    control_fd, parent, path, is_kept, *argv = sys.argv[1:]
    guard = Guard(socket.socket(fileno=int(control_fd)), path, is_kept == "1", argv)
    # SIGTERM and not SIGKILL: after the end of the supervisor the guard must still end the runner's orphans.
    # A frozen guard is no gap: the runner watches the supervisor's end of its socket itself.
    signal.signal(signal.SIGTERM, lambda *_: None)  # Guard.on_signal
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(signal.SIGTERM, int(parent))
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prefer_for_oom("-900")
    guard.tell(f"guard {os.getpid()}")
    guard.serve()
