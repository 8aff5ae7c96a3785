"""The seccomp program, run here by a small interpreter of classic BPF against the rules it was made from."""

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.sandbox import seccomp
from workers.sandbox.seccomp import ALLOW, ARCHITECTURES, KILL, NUMBERS, Rule

EPERM, ENOSYS = 0x00050001, 0x00050026
PID = 4242
MACHINES = list(ARCHITECTURES)


def verdict(code: bytes, arch: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """What the kernel would answer to a call: Documentation/networking/filter.rst, the part we use."""
    low = [value for x in (*arguments, *(0,) * 6)[:6] for value in (x & 0xFFFFFFFF, x >> 32)]
    data = struct.pack("<IIQ12I", number, arch, 0, *low)
    steps = list(struct.iter_unpack("<HBBI", code))
    at = accumulator = 0
    while True:
        operation, yes, no, k = steps[at]
        at += 1
        if operation == 0x06:
            return int(k)
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, k)
            continue
        is_met = {0x15: accumulator == k, 0x45: bool(accumulator & k), 0x35: accumulator >= k}
        at += yes if is_met[operation] else no


def expected(rules: list[Rule], number: int, machine: str, arguments: tuple[int, ...]) -> int:
    column = MACHINES.index(machine)
    for rule in rules:
        value = (*arguments, *(0,) * 6)[rule.at] & 0xFFFFFFFF
        is_refused = {
            "never": True,
            "only": value not in rule.values,
            "but": value in rule.values,
            "lacks": any(value & mask for mask in rule.values),
            "has": not any(value & mask for mask in rule.values),
        }[rule.test]
        if NUMBERS[rule.name][column] == number and is_refused:
            return 0x00050000 | rule.errno
    return ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", ["cpu", "nvidia"])
@given(
    number=st.integers(0, 500),
    arguments=st.lists(
        st.one_of(
            st.sampled_from([0, 1, 2, 10, PID, 0x5412, 0x541C, 0x10000, 0x7D0F00, 0x10000000]),
            st.integers(0, (1 << 64) - 1),
        ),
        max_size=6,
    ).map(tuple),
)
def test_the_program_answers_as_its_rules_say(machine: str, kind: str, number: int, arguments: tuple[int, ...]) -> None:
    rules = seccomp.rules(kind, PID)
    code = seccomp.program(rules, machine)
    found = verdict(code, ARCHITECTURES[machine], number, arguments)
    assert found == expected(rules, number, machine, arguments)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("kind", "name", "arguments", "answer"),
    [
        ("cpu", "ptrace", (), EPERM),
        ("cpu", "mount", (), EPERM),
        ("cpu", "bpf", (), EPERM),
        ("cpu", "io_uring_setup", (), EPERM),
        ("cpu", "execve", (), EPERM),
        ("nvidia", "execve", (), ALLOW),
        ("cpu", "socket", (1,), EPERM),
        ("nvidia", "socket", (1,), ALLOW),
        ("nvidia", "socket", (2,), EPERM),
        ("nvidia", "socket", (10,), EPERM),
        ("cpu", "kill", (PID,), ALLOW),
        ("cpu", "kill", (1,), EPERM),
        ("cpu", "kill", (0xFFFFFFFF,), EPERM),
        ("cpu", "tgkill", (PID, 77), ALLOW),
        ("cpu", "clone3", (), ENOSYS),
        ("cpu", "clone", (0x3D0F00,), ALLOW),
        ("cpu", "clone", (17,), EPERM),
        ("nvidia", "clone", (17,), ALLOW),
        ("nvidia", "clone", (0x10000000 | 17,), EPERM),
        ("cpu", "clone", (0x10000000 | 0x3D0F00,), EPERM),
        ("cpu", "prlimit64", (0,), ALLOW),
        ("cpu", "prlimit64", (1,), EPERM),
        ("cpu", "ioctl", (0, 0x5412), EPERM),
        ("cpu", "ioctl", (0, 0x5401), ALLOW),
    ],
)
def test_what_a_runner_may_not_do(machine: str, kind: str, name: str, arguments: tuple[int, ...], answer: int) -> None:
    number = NUMBERS[name][MACHINES.index(machine)]
    assert number is not None
    code = seccomp.program(seccomp.rules(kind, PID), machine)
    assert verdict(code, ARCHITECTURES[machine], number, arguments) == answer


def test_calls_through_another_table_are_no_way_around() -> None:
    code = seccomp.program(seccomp.rules("cpu", PID), "x86_64")
    assert verdict(code, 0x40000003, 26) == KILL  # i386's ptrace
    assert verdict(code, ARCHITECTURES["x86_64"], 0x40000000 | 101) == ENOSYS  # x32's


def test_a_machine_without_a_table_has_no_program() -> None:
    with pytest.raises(KeyError):
        seccomp.program(seccomp.rules("cpu", PID), "sparc64")


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "/usr/include/asm-generic/unistd.h")],
)
def test_numbers_are_those_of_the_kernels_headers(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip("the kernel's headers are not installed")
    there = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", Path(header).read_text())}
    ours = {name: both[MACHINES.index(machine)] for name, both in NUMBERS.items()}
    known = {name: number for name, number in ours.items() if name in there}
    assert known == {name: there[name] for name in known}
    assert len(known) > 90
