"""The load: accounts that call the front in closed loops and write down every step before and after it.

A step is an intent (synced before the request leaves) and an answer (synced before it counts). What a
client sees of a job later is noted too, so that two ends of one job show.
"""

import asyncio
import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from signalbox.ops.httppool import Response
from verification.chaos.evidence.history import ENDED
from verification.chaos.evidence.journal import Entry, Journal, now
from verification.chaos.traffic.account import Account

WEIGHTS: Final = {"predict": 48, "submit": 20, "once": 7, "wait": 12, "cancel": 5, "slow": 3, "later": 5}
"""What a caller does next, in per cent."""
POLL_S: Final = 0.1
PAUSE_S: Final = 0.1
"""After an answer that says that we are away."""
AGAIN: Final = 0.3
"""Share of accepted idempotent submissions that are sent once more."""
FOREIGN: Final = 0.02
"""Share of jobs that another account asks for."""
PROBE_S: Final = 0.5
MOST_PROBES: Final = 60
CANARY: Final = "31337.25"
"""A caller's number that must never stand in a log."""


class Load:
    """``callers`` loops an account over ``half``, which halves and adds two. slow: the model that takes its time."""

    def __init__(
        self, accounts: list[Account], ledger: Journal, seed: int, *, callers: int, slow: str = "slow"
    ) -> None:
        self.accounts, self.ledger, self.callers = accounts, ledger, callers
        self.slow = slow
        self.accepted: set[str] = set()
        self.answers: Counter[tuple[str, int]] = Counter()
        self.stop = asyncio.Event()
        self._rng = random.Random(seed)
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        self._tasks = [
            asyncio.create_task(self._go_on(account), name=f"caller of {account.name}")
            for account in self.accounts
            for _ in range(self.callers)
        ]

    async def end(self) -> None:
        """No new jobs; returns when every caller has finished its step."""
        self.stop.set()
        for done in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(done, BaseException):
                raise done

    async def drained(self, *, limit_s: float) -> dict[str, list[str]]:
        """Ask for every job until its end was seen; the ids whose end was not, by account."""
        async with asyncio.timeout(limit_s):
            for account in self.accounts:
                gate = asyncio.Semaphore(16)

                async def follow(job: str, account: Account = account, gate: asyncio.Semaphore = gate) -> None:
                    async with gate:
                        await self._follow(account, job)

                async with asyncio.TaskGroup() as group:
                    for job in list(account.open):
                        group.create_task(follow(job))
        return {account.name: list(account.open) for account in self.accounts}

    async def _go_on(self, account: Account) -> None:
        acts = {
            "predict": self._predict,
            "submit": self._submit,
            "wait": self._wait,
            "once": self._once,
            "cancel": self._cancel,
            "slow": self._slow,
            "later": self._later,
        }
        while not self.stop.is_set():
            (act,) = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
            status = await acts[act](account)
            if status in {0, 503, 504}:
                await asyncio.sleep(PAUSE_S)
            if self._rng.random() < FOREIGN:
                await self._spy(account)

    async def probe(self, account: Account) -> int:
        """One job whose end is left to :meth:`drained`: callers may all be waiting for one. The status."""
        value = self._next()
        body = {"model": "half", "instances": [value]}
        entry = await self._ask(account, "probe", "/v1/jobs", body, value / 2 + 2)
        return int(entry["status"])

    async def probe_on(self, account: Account) -> None:
        """Two probes a second until cancelled, whether or not those before were answered: are jobs accepted?

        At most :data:`MOST_PROBES` wait for an answer at once. What is on its way at the end is answered first.
        """
        waiting: set[asyncio.Task[int]] = set()
        try:
            while True:
                if len(waiting) < MOST_PROBES:
                    task = asyncio.create_task(self.probe(account))
                    waiting.add(task)
                    task.add_done_callback(waiting.discard)
                await asyncio.sleep(PROBE_S)
        finally:
            if waiting:
                await asyncio.wait(waiting)

    async def run(self, account: Account, seconds: float) -> str:
        """One job that runs for so long (exact as a float32), its end left to :meth:`drained` too. Its id."""
        body = {"model": self.slow, "instances": [seconds]}
        entry = await self._ask(account, "run", "/v1/jobs", body, seconds)
        assert entry["status"] == 202, entry
        return str(entry["job"])

    async def withdraw(self, account: Account, job: str) -> int:
        """Ask for the end of an open job. The status."""
        asked, expect = round(now(), 4), account.open[job]
        got = await account.call("POST", f"/v1/jobs/{job}/cancel")
        # 409 says that it has ended otherwise, and which way is seen when it is read.
        state = _json(got).get("state", "") if got is not None and got.status in {200, 202} else ""
        status = got.status if got is not None else 0
        await self.ledger.keep(
            event="cancelled",
            client=account.name,
            job=job,
            status=status,
            state=state if state in ENDED else "",
            expect=expect,
            asked=asked,
        )
        return status

    # -- acts ------------------------------------------------------------------------------------------

    async def _predict(self, account: Account) -> int:
        is_canary = self._rng.random() < 0.01
        value = float(CANARY) if is_canary else self._next()
        return await self._step(account, "predict", "/v1/models/half:predict", {"instances": [value]}, value / 2 + 2)

    async def _submit(self, account: Account) -> int:
        value = self._next()
        body = {"model": "half", "instances": [value]}
        return await self._step(account, "submit", "/v1/jobs", body, value / 2 + 2)

    async def _once(self, account: Account) -> int:
        """Under an Idempotency-Key, asked again until it is accepted, and sometimes once more after that."""
        value, once = self._next(), f"{account.name}-{self._number}"
        body = {"model": "half", "instances": [value]}
        entry: Entry = {"status": 0}
        while not self.stop.is_set() and entry["status"] not in {200, 202}:
            entry = await self._ask(account, "once", "/v1/jobs", body, value / 2 + 2, once=once)
            if entry["status"] not in {200, 202}:
                await asyncio.sleep(PAUSE_S)
        if entry["status"] in {200, 202} and self._rng.random() < AGAIN:
            await self._ask(account, "once", "/v1/jobs", body, value / 2 + 2, once=once)
        if entry["status"] == 202:
            await self._follow(account, entry["job"])
        return int(entry["status"])

    async def _wait(self, account: Account) -> int:
        value = self._next()
        body = {"model": "half", "instances": [value]}
        return await self._step(account, "wait", "/v1/jobs", body, value / 2 + 2, Prefer="wait=5")

    async def _slow(self, account: Account) -> int:
        value = self._rng.choice((1 / 64, 1 / 16, 1 / 8, 5 / 16))  # exact as float32
        body = {"model": self.slow, "instances": [value]}
        return await self._step(account, "slow", "/v1/jobs", body, value)

    async def _later(self, account: Account) -> int:
        value = self._next()
        due = datetime.now(UTC) + timedelta(seconds=self._rng.uniform(0.2, 2.0))
        body = {"model": "half", "instances": [value], "not_before": due.isoformat()}
        return await self._step(account, "later", "/v1/jobs", body, value / 2 + 2)

    async def _cancel(self, account: Account) -> int:
        model = self._rng.choice(("half", self.slow))
        value = self._next() if model == "half" else 0.1875
        expect = value / 2 + 2 if model == "half" else value
        body = {"model": model, "instances": [value]}
        entry = await self._ask(account, "cancel", "/v1/jobs", body, expect)
        if entry["status"] == 202:
            await self.withdraw(account, entry["job"])
            await self._follow(account, entry["job"])
        return int(entry["status"])

    async def _step(self, account: Account, op: str, path: str, body: object, expect: float, **headers: str) -> int:
        entry = await self._ask(account, op, path, body, expect, **headers)
        if entry["status"] == 202:
            await self._follow(account, entry["job"])
        return int(entry["status"])

    async def _ask(self, account: Account, op: str, path: str, body: object, expect: float, **headers: str) -> Entry:
        """Intent, request, answer."""
        once = headers.pop("once", "")
        await self.ledger.keep(event="intent", client=account.name, op=op, expect=expect, once=once)
        if once:
            headers["Idempotency-Key"] = once
        asked = round(now(), 4)
        got = await account.call("POST", path, body, **headers)
        status = got.status if got is not None else 0
        entry: Entry = {
            "event": "answer",
            "client": account.name,
            "op": op,
            "status": status,
            "expect": expect,
            "asked": asked,
        }
        if once:
            entry["once"] = once
        self.answers[op, status] += 1
        if got is not None:
            said = _json(got)
            job = got.headers.get("x-signalbox-job-id") or said.get("id") or said.get("job_id")
            if job:
                entry["job"] = job
            if status == 200:
                entry |= {"state": said.get("state", "succeeded"), "y": _y(said)}
            elif status != 202:
                entry["again"] = got.headers.get("retry-after", "")
            if status not in {200, 202, 503, 504} or entry.get("again") == "":
                entry["text"] = got.body[:300].decode(errors="replace")
        await self.ledger.keep(**entry)
        if entry.get("job") and status in {200, 202, 504}:
            self.accepted.add(entry["job"])
            account.latest = entry["job"]
            if status != 200:
                account.open[entry["job"]] = expect
        return entry

    async def _follow(self, account: Account, job: str) -> None:
        """Look until it has ended, or until the load is to end."""
        while job in account.open:
            asked = round(now(), 4)
            got = await account.call("GET", f"/v1/jobs/{job}")
            said = _json(got) if got is not None else {}
            if got is not None and said.get("state") in ENDED:
                expect = account.open.pop(job)
                y = _y(said["result"]) if said.get("result") else None
                await self.ledger.keep(
                    event="seen",
                    client=account.name,
                    job=job,
                    status=got.status,
                    state=said["state"],
                    y=y,
                    expect=expect,
                    asked=asked,
                )
                return
            again = got.headers.get("retry-after", "") if got is not None else ""
            if got is not None and got.status not in {200, 202} and not (got.status == 503 and again):
                await self.ledger.keep(
                    event="answer",
                    client=account.name,
                    op="look",
                    status=got.status,
                    about=job,
                    again=again,
                    expect=account.open[job],
                    text=f"{job}: {got.body[:200].decode(errors='replace')}",
                )
                if got.status == 404:  # a promise broken; the ledger shows it
                    self.answers["lost", 404] += 1
                    del account.open[job]
                    return
            await asyncio.sleep(POLL_S)

    async def _spy(self, account: Account) -> None:
        """Ask for, or cancel, what is another's."""
        other = self._rng.choice([t for t in self.accounts if t is not account])
        if other.latest:
            method = self._rng.choice(("GET", "DELETE"))
            got = await account.call(method, f"/v1/jobs/{other.latest}")
            await self.ledger.keep(
                event="foreign", client=account.name, job=other.latest, status=got.status if got is not None else 0
            )
            self.answers["foreign", got.status if got is not None else 0] += 1

    def _next(self) -> float:
        """A number that no other client sends, exact as a float32."""
        self._number += 1
        return float(self._number % 8_000_000)


def _json(got: Response) -> dict[str, Any]:
    try:
        found = json.loads(got.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _y(said: dict[str, Any]) -> float | None:
    result = said.get("result") or said
    predictions = result.get("predictions")
    return float(predictions[0]) if predictions else None
