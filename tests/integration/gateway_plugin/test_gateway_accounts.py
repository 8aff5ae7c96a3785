"""Whose a job is: every route that takes an id, two accounts, and every way to be wrong about an id."""

import itertools
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from signalbox.jobs.records import Records
from signalbox.program import keys
from signalbox.wire.messages import ErrorInfo, Job, Record, State, decode
from signalbox.wire.names import Header
from tests.rigs.gateway import ALL_SCOPES, Key, Reply, Rig, key, model, reply_of

BODY = {"model": "half", "input": {"x": [1.0]}}
STATES = tuple(State)
ROUTES = {
    "read": ("GET", "/v1/jobs/{}"),
    "result": ("GET", "/v1/jobs/{}/result"),
    "delete": ("DELETE", "/v1/jobs/{}"),
    "cancel": ("POST", "/v1/jobs/{}/cancel"),
    "change": ("PATCH", "/v1/jobs/{}"),
    "retry": ("POST", "/v1/jobs/{}/retry"),
}
BODIES = {"PATCH": {"deadline_s": 60}}
OWN = {
    "read": dict.fromkeys(STATES, 200) | {State.EXPIRED: 410},
    "result": dict.fromkeys(STATES, 409) | {State.SUCCEEDED: 200, State.EXPIRED: 410},
    "delete": dict.fromkeys(STATES, 202) | {State.QUEUED: 409, State.RUNNING: 409},
    "cancel": dict.fromkeys(STATES, 409) | {State.QUEUED: 200, State.RUNNING: 202, State.CANCELLED: 200},
    "change": dict.fromkeys(STATES, 409) | {State.QUEUED: 200},
    "retry": dict.fromkeys(STATES, 409),
}
MALFORMED = (
    "0",
    "x",
    "*",
    ">",
    "st.*",
    "..",
    "%2e%2e",
    "%2F",
    "null",
    "undefined",
    "0" * 32,
    "g" * 36,
    "01234567-89AB-4DEF-8123-456789ABCDEF",
    "{01234567-89ab-4def-8123-456789abcdef}",
    "01234567-89ab-4def-8123-456789abcdef%0a",
    "01234567-89ab-4def-8123-456789abcdef ",
    "01234567-89ab-4def-8123-456789abcde",
    "01234567-89ab-4def-8123-456789abcdef0",
    "01234567_89ab_4def_8123_456789abcdef",
    "é" * 36,
    "a" * 5_000,
    "'; drop table jobs; --",
)


class Owned(NamedTuple):
    """A job and what was stored of it."""

    id: str
    state: State


async def put(front: Rig, owner: Key, state: State) -> Owned:
    """A job of ``owner`` in ``state``: submitted through the plugin, moved on as workers do."""
    got = await front.call("POST", "/v1/jobs", BODY, key=owner)
    assert got.status == 202
    job_id: str = got.doc["id"]
    if state is not State.QUEUED:
        stored = await Records(front.bus).queued(job_id)
        assert stored is not None
        job = decode(Job, stored.headers[Header.JOB])
        record = Record(
            id=job.id,
            model=job.model,
            version=1,
            signature=job.signature,
            account_id=job.account_id,
            state=state,
            attempt=1,
            created_at=job.created_at,
            deadline_at=job.deadline_at,
            error=ErrorInfo(code="model_error", message="no") if state is State.FAILED else None,
        )
        body = b"" if state is not State.SUCCEEDED else stored.data
        await Records(front.bus).write(record, body, expect=0)
    return Owned(job_id, state)


async def seen(front: Rig, jobs: list[Owned]) -> list[tuple[Record, int, bytes] | None]:
    records = Records(front.bus)
    return [await records.read(job.id) for job in jobs]


def comparable(got: Reply) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
    return got.status, tuple(sorted(got.headers.items())), got.body


async def test_every_id_route_serves_the_owner_and_is_the_same_404_to_everybody_else(front: Rig) -> None:
    accounts = (key(), key())
    await front.publish(model(), *accounts)
    jobs = {
        (account, route): [await put(front, account, state) for state in STATES]
        for account in accounts
        for route in ROUTES
    }
    everything = list(itertools.chain.from_iterable(jobs.values()))
    before = await seen(front, everything)
    cases = 0
    for caller, (route, (method, path)) in itertools.product(accounts, ROUTES.items()):
        other = accounts[caller is accounts[0]]
        foreign = [job.id for job in jobs[other, route]]
        strange = [str(uuid.UUID(int=i)) for i in (0, 2**128 - 1)] + [str(uuid.uuid4())]
        answers = set()
        for job_id in (*foreign, *strange, *MALFORMED):
            got = await front.call(method, path.format(job_id), BODIES.get(method), key=caller)
            answers.add(comparable(got))
            cases += 1
        assert len(answers) == 1, f"{route}: foreign and unknown ids can be told apart: {answers}"
        assert next(iter(answers))[0] == 404
    assert await seen(front, everything) == before, "somebody else's job was changed"
    for (owner, route), owned in jobs.items():
        method, path = ROUTES[route]
        for job in owned:
            got = await front.call(method, path.format(job.id), BODIES.get(method), key=owner)
            assert got.status == OWN[route][job.state], (route, job.state, got)
            cases += 1
    assert cases >= 200


async def test_the_keys_of_one_account_own_one_another_s_jobs_and_nobody_else_s(front: Rig) -> None:
    first = key()  # published before there were accounts: its own id is its account's
    second, third = key(account_id=first.stored.id), key(account_id=first.stored.id)
    strangers = (key(), key(account_id="another"))
    account = (first, second, third)
    await front.publish(model(), *account, *strangers)
    jobs = [await put(front, owner, State.QUEUED) for owner in account]
    for owner, job in zip(account, jobs, strict=True):
        queued = await Records(front.bus).queued(job.id)
        assert queued is not None
        made = decode(Job, queued.headers[Header.JOB])
        assert (made.account_id, made.key_id) == (first.stored.id, owner.stored.id)
    for caller, job in itertools.product(account, jobs):
        got = await front.call("GET", f"/v1/jobs/{job.id}", key=caller)
        assert got.status == 200
    for caller, job in itertools.product(strangers, jobs):
        for method, path in ROUTES.values():
            got = await front.call(method, path.format(job.id), BODIES.get(method), key=caller)
            assert got.status == 404
    got = await front.call("POST", f"/v1/jobs/{jobs[0].id}/cancel", key=third)
    assert got.status == 200


async def test_every_route_asks_for_its_scope_and_for_no_other(front: Rig) -> None:
    routes = {
        ("POST", "/v1/jobs"): "jobs:submit",
        ("POST", "/v1/predict"): "jobs:submit",
        ("POST", "/v1/models/half:predict"): "jobs:submit",
        ("GET", "/v1/jobs/{}"): "jobs:read",
        ("GET", "/v1/jobs/{}/result"): "jobs:read",
        ("DELETE", "/v1/jobs/{}"): "jobs:cancel",
        ("PATCH", "/v1/jobs/{}"): "jobs:cancel",
        ("POST", "/v1/jobs/{}/retry"): "jobs:submit",
        ("POST", "/v1/jobs/{}/cancel"): "jobs:cancel",
        ("GET", "/v1/models"): "",
        ("GET", "/v1/models/half"): "",
        ("GET", "/v1/models/half/metadata"): "",
    }
    await front.publish(model())
    subsets = [chosen for size in range(len(ALL_SCOPES) + 1) for chosen in itertools.combinations(ALL_SCOPES, size)]
    for scopes in subsets:
        mine = key(scopes=scopes)
        await front.publish(mine)
        for (method, path), needed in routes.items():
            body: Mapping[str, object] | None = BODIES.get(method)
            if method == "POST" and not path.endswith("/retry"):
                body = {**BODY} if "models" not in path else {"inputs": [1]}
            got = await front.call(
                method, path.format(uuid.uuid4()), body, key=mine, headers={"Prefer": "respond-async"}
            )
            is_allowed = not needed or needed in scopes
            assert (got.status != 403) == is_allowed, (scopes, method, path, got.status)
            assert got.status < 500
        got = await front.call("POST", "/v1/jobs", {**BODY, "priority": "hi"}, key=mine)
        assert (got.status != 403) == ({"jobs:submit", "jobs:urgent"} <= set(scopes)), scopes


async def test_five_hundred_mutated_keys_get_one_and_the_same_401(front: Rig) -> None:
    import random

    mine = key()
    await front.publish(mine)
    for count in (front.gateway.keyring._of_ids, front.gateway.keyring._of_addresses):
        count._limit = 10_000
    rng = random.Random(4)
    texts: set[str] = set()
    while len(texts) < 500:
        text = list(mine.text)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            at = rng.randrange(len(text))
            change = rng.randrange(5)
            if change == 0:
                text[at] = rng.choice(keys.ALPHABET + "_-. \u00e9")
            elif change == 1:
                del text[at]
            elif change == 2:
                text.insert(at, rng.choice(keys.ALPHABET))
            elif change == 3:
                text[at] = text[at].swapcase()
            else:
                body = "".join(text)[: -keys._CRC_SIZE]
                text = list(body[:at] + rng.choice(keys.ALPHABET) + body[at + 1 :])
                text += keys._checksum("".join(text))
        texts.add("".join(text))
    texts.discard(mine.text)
    answers = set()
    for mutated in sorted(texts):
        got = reply_of(await front.authenticate({"X-Api-Key": mutated}))
        assert got is not None, mutated
        answers.add(comparable(got))
    assert len(answers) == 1
    assert next(iter(answers))[0] == 401
