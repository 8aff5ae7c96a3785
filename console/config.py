"""Settings of the console's programs: ``SIGNALBOX_CONSOLE_*`` beside the shared ``SIGNALBOX_*``."""

import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta

from signalbox.front.bounds import HttpBounds
from signalbox.program.errors import InvalidRequest, Misconfigured
from signalbox.program.settings import load
from signalbox.repositories.location import MOST_REPOSITORY_LETTERS, SCHEMES, Location
from signalbox.wire.names import MODEL_NAME

PREFIX: Final = "SIGNALBOX_CONSOLE_"
UPLOADS: Final = "uploads"
"""Name of the default repository, and of the folder that it is where no setting says otherwise."""

ROLE_NAMES: Final = ("viewer", "operator", "model manager", "admin")
"""Roles of operators, each of which may do all that the one before it may."""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def is_trusted_url(url: str) -> bool:
    """Whether nobody on the way reads or changes what this URL gives: HTTPS, or a program on this machine."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  raises for one that is none
    except ValueError:
        return False
    if not parts.hostname or parts.username or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


class ConsoleSettings(HttpBounds, frozen=True, kw_only=True):
    """Settings of the console, its projector and its controller."""

    listen: Annotated[str, Meta(description="Address `serve` listens on, `host:port`; port 0 takes a free one.")] = (
        "127.0.0.1:8000"
    )
    data_dir: Annotated[str, Meta(description="Folder for the embedded database, the secret key and uploads.")] = (
        ".signalbox/console"
    )
    database_url: Annotated[
        str,
        Meta(
            description="`postgresql://user:password@host:port/name`, across a network with"
            " `?sslmode=verify-full&sslrootcert=FILE`; empty = SQLite in data_dir.",
            extra={"secret": True},
        ),
    ] = ""
    secret_key: Annotated[
        str,
        Meta(
            description="Signs sessions; empty = a key `bootstrap` makes and keeps in data_dir.", extra={"secret": True}
        ),
    ] = ""
    repository_dir: Annotated[str, Meta(description="Where uploaded models are laid out; empty = data_dir/models.")] = (
        ""
    )
    uploads_url: Annotated[
        str,
        Meta(
            description="Where uploaded models are kept, for hosts that share no disk: `s3://bucket/prefix`, `gs://`,"
            " `az://`, with the credentials `uploads.json`; empty = the folder repository_dir."
        ),
    ] = ""
    repository_roots: Annotated[
        tuple[str, ...],
        Meta(
            description="Folders a registered path must lie in; empty = any readable path. Paths below one given as"
            " `name=folder` are kept relative to it: when the folder moves, only this setting changes."
        ),
    ] = ()
    repository_urls: Annotated[
        tuple[str, ...],
        Meta(
            description="Where repositories may lie that operators add: `s3://bucket/prefix`, `gs://`, `az://`,"
            " `file:///folder`; `s3://` alone is every bucket. Empty = folders that a registered path may lie in."
        ),
    ] = ()
    repository_credentials: Annotated[
        str,
        Meta(
            description="Folder with a file `<repository>.json` for each repository in an object store that needs"
            " credentials; empty, or no such file = this machine's own identity."
        ),
    ] = ""
    repositories_every_s: Annotated[
        float, Meta(description="How often the controller lists each repository, in seconds.", gt=0)
    ] = 10.0
    allowed_hosts: Annotated[tuple[str, ...], Meta(description="Host names the console answers to.")] = (
        "127.0.0.1",
        "localhost",
        "[::1]",
    )
    trusted_origins: Annotated[
        tuple[str, ...], Meta(description="Origins (`https://console.example`) of forms behind a proxy.")
    ] = ()
    is_https: Annotated[bool, Meta(description="Served over HTTPS: secure cookies, redirect and HSTS.")] = False
    trust_proxy: Annotated[bool, Meta(description="A proxy in front sets (and strips) X-Forwarded-Proto and -For.")] = (
        False
    )
    front_url: Annotated[str, Meta(description="URL consumers call; shown in snippets.")] = "http://127.0.0.1:8080"
    trial_url: Annotated[
        str, Meta(description="Where the console itself reaches the front, to try models out; empty = FRONT_URL.")
    ] = ""
    admin_user: Annotated[str, Meta(description="Name of the first admin `bootstrap` makes.")] = "admin"
    admin_password: Annotated[
        str,
        Meta(description="Password of the first admin; empty = one is made and printed once.", extra={"secret": True}),
    ] = ""
    session_s: Annotated[int, Meta(description="Seconds a login lasts.", ge=60)] = 8 * 3600
    idle_s: Annotated[int, Meta(description="Seconds without a request after which a login ends.", ge=60)] = 1800
    live_per_user: Annotated[int, Meta(description="Live connections (tabs) one operator may hold at once.", ge=1)] = 20
    login_per_account: Annotated[
        int, Meta(description="Failed logins per account in five minutes before a wait.", ge=1)
    ] = 5
    login_per_address: Annotated[
        int, Meta(description="Failed logins per address in five minutes before a wait.", ge=1)
    ] = 20
    login_places: Annotated[
        int,
        Meta(description="Logins that are hashed or wait for it; one address holds no more than are still free.", ge=2),
    ] = 16
    login_wait_s: Annotated[
        float, Meta(description="Seconds a login waits for its turn to be hashed, then 503.", gt=0)
    ] = 10.0
    second_factor: Annotated[
        str,
        Meta(
            pattern="^(optional|required)$",
            description="Whether each local login needs a code of an authenticator app: `optional` = those who added"
            " one; `required` = all, and who has none adds it at the next login.",
        ),
    ] = "optional"
    oidc_issuer: Annotated[
        str,
        Meta(
            description="URL of the OpenID Connect provider that operators sign on with, exactly as its discovery"
            " document says `issuer`; empty = local logins alone."
        ),
    ] = ""
    oidc_client_id: Annotated[str, Meta(description="Id of the console as the provider's client.")] = ""
    oidc_client_secret: Annotated[
        str, Meta(description="Its secret; empty = a public client (PKCE alone).", extra={"secret": True})
    ] = ""
    oidc_scopes: Annotated[tuple[str, ...], Meta(description="Scopes asked for; `openid` is always.")] = (
        "profile",
        "email",
    )
    oidc_name_claim: Annotated[
        str, Meta(description="Claim that names a new operator; read at the first sign-on alone.")
    ] = "preferred_username"
    oidc_role_claim: Annotated[
        str,
        Meta(description="Claim with an operator's groups, a text or a list; `realm_access.roles` is one in another."),
    ] = "groups"
    oidc_roles: Annotated[
        tuple[str, ...],
        Meta(
            description="Which value of that claim gives which role: `value=role`, `ml-team=model manager`. The highest"
            " counts; who has none is refused."
        ),
    ] = ()
    oidc_email_domains: Annotated[
        tuple[str, ...],
        Meta(description="Only verified addresses (`email_verified`) of these domains are let in; empty = all."),
    ] = ()
    oidc_button: Annotated[str, Meta(description="Words of the button on the login page.", max_length=60)] = (
        "Sign on with your organisation"
    )
    upload_max_bytes: Annotated[int, Meta(description="Largest model archive, and its content, in bytes.", ge=1024)] = (
        8 * 1024**3
    )
    inspect_timeout_s: Annotated[float, Meta(description="Longest an inspection of a SavedModel may take.", gt=0)] = (
        120.0
    )
    inspect_command: Annotated[
        str, Meta(description="Program that inspects a SavedModel; empty = this Python's workers.inspect.")
    ] = ""
    classes: Annotated[
        tuple[str, ...],
        Meta(
            description="Most devices of each class that have workers, as `a100=4`, in the order in which they are"
            " filled; 0 = all that there are. A class that is not named comes last, with all that there are."
        ),
    ] = ()
    reconcile_s: Annotated[
        float, Meta(description="How often the controller compares NATS with the database.", gt=0)
    ] = 30.0
    audit_mark_s: Annotated[
        float, Meta(description="How often the controller notes the audit's head in NATS, if it moved.", gt=0)
    ] = 600.0
    vanished_after_s: Annotated[
        float, Meta(description="Open jobs unchanged this long are checked against NATS.", gt=0)
    ] = 120.0
    deleted_kept_s: Annotated[
        float,
        Meta(
            description="How long the deletion of a model, version or repository can be undone, in seconds; uploaded"
            " files go after that.",
            ge=0,
        ),
    ] = 86_400.0
    canary_error_points: Annotated[
        float,
        Meta(
            description="A split is rolled back by itself where the candidate's share of failed calls is so many"
            " percentage points above the other version's.",
            ge=0,
            le=100,
        ),
    ] = 2.0
    canary_run_factor: Annotated[
        float,
        Meta(
            description="A split is rolled back by itself where the p95 of the candidate's runs is more than so many"
            " times the other version's.",
            ge=1,
        ),
    ] = 1.5
    canary_run_floor_ms: Annotated[
        float,
        Meta(
            description="And that p95 is at least so many milliseconds above the other's: where runs are short, what"
            " else the machine does makes one of them twice as long.",
            ge=0,
        ),
    ] = 10.0
    jobs_kept_days: Annotated[
        float, Meta(description="Rows of ended jobs are deleted after this many days; 0 = never.", ge=0)
    ] = 30.0
    jobs_kept_rows: Annotated[
        int, Meta(description="Rows of jobs that are kept, the newest; 0 = all of them.", ge=0)
    ] = 1_000_000
    projector_batch: Annotated[
        int,
        Meta(
            description="Acceptances, and records, that the projector writes in one transaction at most.",
            ge=1,
            le=20_000,
        ),
    ] = 2000

    @property
    def data(self) -> Path:
        """The data folder, absolute."""
        return Path(self.data_dir).resolve()

    @property
    def repository(self) -> Path:
        """Where uploads are laid out, absolute."""
        return Path(self.repository_dir).resolve() if self.repository_dir else self.data / "models"

    @property
    def roots(self) -> dict[str, Path]:
        """Named folders that models lie in, absolute; uploads lie in one of them."""
        named = {name: Path(folder).resolve() for name, folder in self._roots() if name}
        return {UPLOADS: self.repository, **named}

    @property
    def uploads(self) -> Location:
        """The default repository: where uploaded models are kept."""
        return Location.parse(self.uploads_url or f"file://{self.repository}")

    @property
    def allowed_folders(self) -> list[Path]:
        """Folders a registered path must lie in, absolute; empty = any."""
        listed = [Path(folder).resolve() for _, folder in self._roots()]
        return [*listed, self.repository] if listed else []

    def kept_path(self, folder: Path) -> str:
        """How the database names a folder: ``<root>:<path below it>``, or its absolute path where no root has it."""
        for name, root in self.roots.items():
            if folder.is_relative_to(root):
                return f"{name}:{folder.relative_to(root)}"
        return str(folder)

    def real_path(self, kept: str) -> str:
        """The absolute path of what :meth:`kept_path` named; as it is kept where its root is not known any more.

        A URL stays as it is.
        """
        name, colon, below = kept.partition(":")
        root = None if kept.startswith("/") or below.startswith("//") else self.roots.get(name)
        return str(root / below) if colon and root else kept

    def problems(self) -> Iterator[str]:
        """Rules between the fields."""
        yield from super().problems()
        names = [UPLOADS, *(name for name, _ in self._roots() if name)]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{PREFIX}REPOSITORY_ROOTS: two folders have the name {name}"
        for name in names:
            if not MODEL_NAME.match(name) or name in SCHEMES:
                yield f"{PREFIX}REPOSITORY_ROOTS: {name!r} is no name; take letters, digits, '.', '_' and '-'"
        for url in self.repository_urls:
            try:
                Location.parse("file:///").is_within([url])
            except InvalidRequest as error:
                yield f"{PREFIX}REPOSITORY_URLS: {url!r}: {error.public_message}"

        yield from self._classes_problems()
        if self.uploads_url:
            yield from self._uploads_problems()
        if self.oidc_issuer:
            yield from self._oidc_problems()

    @property
    def most_of_class(self) -> dict[str, int]:
        """Most devices with workers, by class, in order; 0 = all that there are."""
        pairs = (pair.rpartition("=") for pair in self.classes)
        return {name.strip(): int(most) for name, _, most in pairs}

    def _classes_problems(self) -> Iterator[str]:
        for pair in self.classes:
            name, _, most = pair.rpartition("=")
            if not name.strip() or not most.isdecimal() or not most.isascii():
                yield f"{PREFIX}CLASSES: {pair!r} is no class=number"

    @property
    def role_of_value(self) -> dict[str, str]:
        """The role that each value of the provider's claim gives."""
        return {value: role for value, _, role in (pair.rpartition("=") for pair in self.oidc_roles)}

    def _oidc_problems(self) -> Iterator[str]:
        if not is_trusted_url(self.oidc_issuer):
            yield f"{PREFIX}OIDC_ISSUER: an https:// URL; http:// is for a provider on this machine"
        if not self.oidc_client_id:
            yield f"{PREFIX}OIDC_CLIENT_ID: the id that the provider gave the console"
        if not self.oidc_roles:
            yield f"{PREFIX}OIDC_ROLES: without a value=role nobody can sign on"
        for pair in self.oidc_roles:
            value, _, role = pair.rpartition("=")
            if not value or role not in ROLE_NAMES:
                yield f"{PREFIX}OIDC_ROLES: {pair!r} is no value=role, with one of {', '.join(ROLE_NAMES)}"

    def _uploads_problems(self) -> Iterator[str]:
        what = f"{PREFIX}UPLOADS_URL: {self.uploads_url!r}"
        try:
            if self.uploads.is_local:
                yield f"{what}: a folder for uploads is {PREFIX}REPOSITORY_DIR"
        except InvalidRequest as error:
            yield f"{what}: {error.public_message}"
        if len(self.uploads_url) > MOST_REPOSITORY_LETTERS:
            yield f"{what}: a repository's URL has at most {MOST_REPOSITORY_LETTERS} letters"

    def _roots(self) -> Iterator[tuple[str, str]]:
        """(name, folder) of each listed root; no name where none is given."""
        for text in self.repository_roots:
            name, equals, folder = text.partition("=")
            is_named = bool(equals) and "/" not in name
            yield (name, folder) if is_named else ("", text)

    @property
    def secret_file(self) -> Path:
        """Where ``bootstrap`` keeps a secret key it made."""
        return self.data / "secret_key"

    def signing_key(self) -> str:
        """The key set, else the one kept, else a random one that ends with this process."""
        if self.secret_key:
            return self.secret_key
        try:
            return self.secret_file.read_text().strip()
        except FileNotFoundError:
            return secrets.token_urlsafe(48)
        except OSError as error:
            msg = f"Cannot read the console's secret key {self.secret_file}: {error.strerror}."
            raise Misconfigured(msg) from error


def read(env: Mapping[str, str] = os.environ) -> ConsoleSettings:
    """The settings of this process. Raises :class:`Misconfigured` naming the variable at fault."""
    return load(ConsoleSettings, PREFIX, env)
