"""Seccomp: which system calls a runner may make. A list of refusals, compiled to classic BPF by hand.

Refused calls fail with EPERM, as if the process lacked the right; a call made through another
architecture's table ends the process. Source: Linux' Documentation/userspace-api/seccomp_filter.rst;
numbers are those of asm/unistd.h.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
_ERRNO: Final = 0x00050000
EPERM, ENOSYS = 1, 38
_ARCH_AT, _NUMBER_AT, _ARGUMENTS_AT = 4, 0, 16
_X32: Final = 0x40000000
ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_INSTRUCTION: Final = struct.Struct("<HBBI")
AF_UNIX: Final = 1
CLONE_THREAD: Final = 0x10000
_CLONE_NEW: Final = 0x7E020000 | 0x80
"""Every CLONE_NEW* flag: a new namespace brings back rights that were given up."""
_PR_SET_PDEATHSIG: Final = 1
_TTY_INPUT: Final = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: type into the terminal that started the worker."""

_Numbers = dict[str, tuple[int | None, int | None]]
"""Number of each call: (x86_64, aarch64)."""

_NEVER: Final[_Numbers] = {
    # other processes' memory, files and limits
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "tkill": (200, 130),
    # the tree of files, and rights on files
    "mount": (165, 40),
    "umount2": (166, 39),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "truncate": (76, 45),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # rights of the process
    "unshare": (272, 97),
    "setns": (308, 268),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setgroups": (116, 159),
    "setfsuid": (122, 151),
    "setfsgid": (123, 152),
    "capset": (126, 91),
    "personality": (135, 92),
    # wide doors into the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    # the machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
    "vhangup": (153, 58),
    # the lock of the device, which any copy of its descriptor can release
    "flock": (73, 32),
    # memory and queues shared with every process of the same user
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "semget": (64, 190),
    "semop": (65, 193),
    "mq_open": (240, 180),
}
NUMBERS: Final[_Numbers] = _NEVER | {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    "clone": (56, 220),
    "clone3": (435, 435),
    "prctl": (157, 167),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "prlimit64": (302, 261),
    "ioctl": (16, 29),
}
"""Of each call that the filter names."""
_NO_PROGRAMS: Final = ("execve", "execveat", "fork", "vfork")
_NO_SOCKETS: Final = ("socket", "connect", "bind", "listen", "accept", "accept4")

Test = Literal["never", "only", "but", "lacks", "has"]


class Rule(NamedTuple):
    """One refusal: ``test`` on argument number ``at`` (its low 32 bits) against ``values``.

    never: the call is always refused. only: refused unless the argument is one of the values. but:
    refused where it is one of them. lacks: refused where it has any bit of the one value. has:
    refused where it has none of its bits.
    """

    name: str
    test: Test = "never"
    at: int = 0
    values: tuple[int, ...] = ()
    errno: int = EPERM


def rules(kind: str, pid: int) -> list[Rule]:
    """What a runner of a ``cpu`` or ``nvidia`` device with process id ``pid`` may not do.

    A GPU's runner may start programs (XLA's ptxas) and speak over Unix sockets (the driver's
    persistence daemon); a virtual device's runner needs neither. clone3 hides its flags from a
    filter, so it does not exist here: the C library then takes clone.
    """
    found = [Rule(name) for name in _NEVER]
    found += [
        Rule("clone3", errno=ENOSYS),
        Rule("clone", "lacks", 0, (_CLONE_NEW,)),
        Rule("kill", "only", 0, (pid,)),
        Rule("tgkill", "only", 0, (pid,)),
        Rule("rt_sigqueueinfo", "only", 0, (pid,)),
        Rule("rt_tgsigqueueinfo", "only", 0, (pid,)),
        Rule("prlimit64", "only", 0, (0, pid)),
        Rule("ioctl", "but", 1, _TTY_INPUT),
        Rule("prctl", "but", 0, (_PR_SET_PDEATHSIG,)),
    ]
    if kind == "cpu":
        found += [Rule(name) for name in (*_NO_PROGRAMS, *_NO_SOCKETS)]
        found.append(Rule("clone", "has", 0, (CLONE_THREAD,)))
    else:
        found.append(Rule("socket", "only", 0, (AF_UNIX,)))
    return found


def program(refusals: Sequence[Rule], machine: str) -> bytes:
    """The filter for ``machine``. Raises :class:`KeyError` for a machine without a table."""
    column = list(ARCHITECTURES).index(machine) if machine in ARCHITECTURES else -1
    if column < 0:
        raise KeyError(machine)
    code = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_JUMP_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        code += [(_JUMP_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | ENOSYS)]
    for rule in refusals:
        number = NUMBERS[rule.name][column]
        if number is not None:
            body = _body(rule)
            code += [(_JUMP_EQUAL, 0, len(body), number), *body]
    code.append((_RETURN, 0, 0, ALLOW))
    return b"".join(_INSTRUCTION.pack(*one) for one in code)


def _body(rule: Rule) -> list[tuple[int, int, int, int]]:
    """What follows a match of the number; falls through, with the number loaded, where it is no refusal."""
    refuse = (_RETURN, 0, 0, _ERRNO | rule.errno)
    if rule.test == "never":
        return [refuse]
    load = (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * rule.at)
    again = (_LOAD, 0, 0, _NUMBER_AT)
    if rule.test in {"only", "but"}:
        # Each comparison jumps over those left: over the refusal too for "only", onto it for "but".
        over = 1 if rule.test == "only" else 0
        left = range(len(rule.values) - 1, -1, -1)
        tests = [
            (_JUMP_EQUAL, count + over, 0 if over or count else 1, value)
            for count, value in zip(left, rule.values, strict=True)
        ]
        return [load, *tests, refuse, again]
    (mask,) = rule.values
    jumps = (0, 1) if rule.test == "lacks" else (1, 0)
    return [load, (_JUMP_SET, *jumps, mask), refuse, again]


def install(code: bytes) -> None:
    """Put the calling thread, and every thread it will start, under the filter, for good.

    Needs no_new_privs. Raises :class:`OSError` where the kernel has no seccomp filters.
    """

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    given = Program(len(code) // _INSTRUCTION.size, code)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(given), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def machine() -> str:
    """This machine's name in :data:`ARCHITECTURES`."""
    return platform.machine()
