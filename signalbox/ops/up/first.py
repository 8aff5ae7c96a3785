"""Demonstrates that the stack works: demonstration models, an API key, one real prediction."""

import asyncio
import itertools
import random
import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from signalbox.client import AsyncClient
from signalbox.ops.demo import Digit, digits
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.ops.up.datadir import DataDir, write_private
from signalbox.ops.up.stack import ADMIN, UpStack
from signalbox.program.errors import Conflict, SignalboxError, Unauthorized, Unavailable

MODELS: Final = {
    "half_plus_two": "y = x / 2 + 2.",
    "digits": "Small CNN on 8x8 handwritten digits.",
    "slow": "Computes for as many seconds as it is told.",
    "large": "192 MiB of weights, to watch loading and eviction.",
}
INDEPENDENT: Final = frozenset({"half_plus_two", "digits", "large"})
"""Those whose rows are independent; the slowest row of a run of ``slow`` says how long all of them compute."""
TRAIN_S: Final = 900.0
FIRST_ANSWER_S: Final = 120.0
RETRY_S: Final = 0.25
SHADES: Final = " .:-=+*#%@"


class StackView(Protocol):
    """A stack that runs, as far as it is shown. say: called with sentences a person should read."""

    say: Callable[[str], None]

    @property
    def data(self) -> DataDir:
        """Its folder: ``models`` and ``secrets`` are in it."""

    @property
    def front_url(self) -> str:
        """Where API consumers call."""

    @property
    def console_url(self) -> str:
        """Where operators go."""

    async def operator_token(self, *, anew: bool = False) -> str:
        """A token of the first admin for the console's REST API."""


class Greeting(NamedTuple):
    """What a newcomer needs. api_key: empty without the demonstration."""

    user: str
    password: str
    api_key: str

    def document(self) -> dict[str, Any]:
        """What ``up.json`` tells of it."""
        return {"api_key": self.api_key, "login": {"user": self.user, "password": self.password}}


async def show(stack: StackView, folder: Path | None, repositories: Sequence[str] = ()) -> Greeting:
    """Models, key and prediction; only what an earlier start has not left is made.

    folder: the models as the console finds them, None without the demonstration. repositories: URLs.
    """
    password = stack.data.admin_password().read_text().strip()
    if folder is None and not repositories:
        await stack.operator_token()  # for `signalbox models import`
        return Greeting(ADMIN, password, "")
    async with await _console(stack) as console:
        if repositories:
            await _add(repositories, stack, console)
        if folder is None:
            return Greeting(ADMIN, password, "")
        for name, description in MODELS.items():
            if not await console.has(name):
                stack.say(f"registering {name} through the console's API")
                is_independent = name in INDEPENDENT
                await console.register(name, folder / name, description, rows_independent=is_independent)
        api_key = await _key(stack, console)
    await _predict(stack, api_key)
    return Greeting(ADMIN, password, api_key)


async def _console(stack: StackView) -> ConsoleClient:
    """A session with the console, by the kept token if that still opens it."""
    console = ConsoleClient(stack.console_url, await stack.operator_token())
    try:
        await console.name()
    except Unauthorized:
        stack.say("the console does not know the kept operator token; making another")
    else:
        return console
    await console.close()
    return ConsoleClient(stack.console_url, await stack.operator_token(anew=True))


async def _add(repositories: Sequence[str], stack: StackView, console: ConsoleClient) -> None:
    """Those that are not there yet. Their models are noticed while the stack runs."""
    known = await console.repositories()
    for url in repositories:
        if url not in known.values():
            name = name_for(url, known.keys())
            known[name] = url
            stack.say(f"adding the repository {name}, {url}: its models come by themselves in half a minute")
            await console.add_repository(name, url)


def name_for(url: str, taken: Collection[str]) -> str:
    """The last part of the URL that makes a name; where that is taken, with the one before it, or with a number."""
    parts = (re.sub(r"[^A-Za-z0-9_-]+", "-", part).strip("-_")[:40] for part in url.partition("://")[2].split("/"))
    words = list(filter(None, parts)) or ["models"]
    word, longer = words[-1], "-".join(words[-2:])
    names = itertools.chain([word, longer], (f"{word}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


async def train(stack: UpStack) -> Path | None:
    """The demonstration models' folder, made on the first start; None when not wanted."""
    if not stack.options.has_demo:
        return None
    folder = stack.data.path / "models"
    if not (folder / "digits").exists():
        stack.say("training the demonstration models (once)")
    printed = await stack.run_to_end(
        "demo-models", "workers.demo_models", str(folder), env=stack.env("worker"), limit_s=TRAIN_S
    )
    for line in printed.splitlines():
        if " held-out right" in line:
            stack.say(line)
    return folder


async def _key(stack: StackView, console: ConsoleClient) -> str:
    """The kept demonstration key if it still opens the front and may do all that a new one may, else a new one."""
    path, account = stack.data.path / "secrets" / "api_key", ""
    if path.exists():
        kept = path.read_text()
        try:
            async with AsyncClient(stack.front_url, kept, retries=0) as client:
                await client.models()
        except Unauthorized:
            stack.say("the kept API key was revoked or has expired; making another")
        except SignalboxError:
            return kept  # not ready yet; the first prediction will tell
        else:
            lacking, account = await console.lacking(kept)
            if not lacking:
                return kept
            stack.say(f"the kept API key is an earlier version's and lacks {', '.join(lacking)}; making another")
    try:
        text = await console.create_key("demo", account)
    except Conflict:  # names are unique, and the kept key had this one
        text = await console.create_key(f"demo {datetime.now(UTC):%Y-%m-%d %H:%M}", account)
    write_private(path, text)
    return text


async def _predict(stack: StackView, api_key: str) -> None:
    """One held-out digit through the front, shown with the model's answer."""
    digit = random.choice(digits(stack.data.path))  # noqa: S311  any of them will do
    stack.say("asking the model about a handwritten digit it was not trained on")
    async with AsyncClient(stack.front_url, api_key, retries=0) as client:
        reply = await _answered(client, digit)
    (found,) = reply["predictions"]
    print("\n" + picture(digit))
    sure = max(found["probabilities"])
    stack.say(f"digits says {found['label']} ({sure:.1%} sure); the writer meant {digit.label}")


async def _answered(client: AsyncClient, digit: Digit) -> dict[str, Any]:
    """The answer, as soon as the tables have reached the front and the model is loaded."""
    fault: SignalboxError = Unavailable("The front did not answer.")
    try:
        async with asyncio.timeout(FIRST_ANSWER_S):
            while True:
                try:
                    return await client.predict("digits", instances=[digit.image])
                except SignalboxError as error:
                    fault = error
                await asyncio.sleep(RETRY_S)
    except TimeoutError:
        raise Unavailable(
            f"No prediction within {FIRST_ANSWER_S:g} s. The last answer was: {fault.public_message}"
        ) from fault


def picture(digit: Digit) -> str:
    """The digit in characters, two a pixel."""
    steps = len(SHADES) - 1
    return "\n".join("    " + "".join(SHADES[round(value / 16 * steps)] * 2 for value in row) for row in digit.image)
