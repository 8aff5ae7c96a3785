"""Reads the interval log that runners write (:mod:`workers.runner.intervals`), and judges it."""

import itertools
from collections import defaultdict
from pathlib import Path

import msgspec

from verification.chaos.evidence import journal
from workers.runner.intervals import DeviceInterval


def read(path: Path) -> list[DeviceInterval]:
    """All lines, in the order they were written."""
    decode = msgspec.json.Decoder(DeviceInterval).decode
    return [decode(line) for line in journal.lines(path)]


def violations(lines: list[DeviceInterval]) -> list[str]:
    """What must never happen: uses that overlap, a witness that was taken, a token that fell; in words.

    A stay without its end (a killed runner) counts until its last use.
    """
    found = [f"{x.pid} entered {x.gpu} while another was inside" for x in lines if x.kind == "overlap"]
    by_gpu: defaultdict[str, list[DeviceInterval]] = defaultdict(list)
    for line in lines:
        by_gpu[line.gpu].append(line)
    for gpu, log in by_gpu.items():
        uses = sorted((x for x in log if x.kind == "use"), key=lambda x: x.t_in)
        for before, after in itertools.pairwise(uses):
            if after.t_in < before.t_out and after.pid != before.pid:
                found.append(f"{before.pid} and {after.pid} used {gpu} at once at {after.t_in}")
        stays = sorted((x for x in log if x.kind == "in"), key=lambda x: x.t_in)
        for before, after in itertools.pairwise(stays):
            if after.token < before.token or (after.token == before.token and _is_new(before, after)):
                found.append(f"token of {gpu} went from {before.token} to {after.token}")
        ends = {(x.pid, x.t_in): x.t_out for x in log if x.kind == "out"}
        for before, after in itertools.pairwise(stays):
            if after.t_in < ends.get((before.pid, before.t_in), 0.0):
                found.append(f"{after.pid} entered {gpu} before {before.pid} had left")
    return found


def _is_new(before: DeviceInterval, after: DeviceInterval) -> bool:
    """Whether two stays under one token are more than one runner crashing and being replaced."""
    return before.pid == after.pid
