"""Rules for the ``SIGNALBOX_*`` variables of a program, applied without starting it.

Only text is looked at, so that the doctor needs none of the programs. Defaults repeated here are compared with the
programs' own by a test.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from signalbox.bus.transport.encryption import is_loopback, readable
from signalbox.ops.doctor import certificates
from signalbox.ops.doctor.catalog import Finding
from signalbox.program.filesystem import remote_kind
from signalbox.program.words import counted
from signalbox.wire.roles import queue_role

DEFAULTS: Final[Mapping[str, str]] = {
    "SIGNALBOX_NATS_URL": "nats://127.0.0.1:4222",
    "SIGNALBOX_LOG_LEVEL": "INFO",
    "SIGNALBOX_METRICS_HOST": "127.0.0.1",
    "SIGNALBOX_METRICS_PORT": "0",
    "SIGNALBOX_GATEWAY_LISTEN": "127.0.0.1:9111",
    "SIGNALBOX_GATEWAY_SOCKET_MODE": "0660",
    "SIGNALBOX_GATEWAY_STALE_KEYS_S": "14.0",
    "SIGNALBOX_CONSOLE_LISTEN": "127.0.0.1:8000",
    "SIGNALBOX_CONSOLE_ALLOWED_HOSTS": "127.0.0.1,localhost,[::1]",
    "SIGNALBOX_CONSOLE_IS_HTTPS": "off",
    "SIGNALBOX_CONSOLE_TRUST_PROXY": "off",
    "SIGNALBOX_CONSOLE_SESSION_S": "28800",
    "SIGNALBOX_CONSOLE_IDLE_S": "1800",
    "SIGNALBOX_CONSOLE_LOGIN_PER_ACCOUNT": "5",
    "SIGNALBOX_CONSOLE_LOGIN_PER_ADDRESS": "20",
}
PROGRAMS: Final = ("gateway", "worker", "console", "outbound", "host", "admin")
SECRETS: Final = (
    "SIGNALBOX_NATS_PASSWORD",
    "SIGNALBOX_NATS_SEED",
    "SIGNALBOX_QUEUES_NATS_PASSWORD",
    "SIGNALBOX_KEY_PEPPER",
    "SIGNALBOX_GATEWAY_SECRET",
    "SIGNALBOX_CONSOLE_SECRET_KEY",
    "SIGNALBOX_CONSOLE_ADMIN_PASSWORD",
    "SIGNALBOX_CONSOLE_DATABASE_URL",
)
_ON: Final = frozenset({"on", "true", "1", "yes"})
_PEPPER_CHARS, _KEY_CHARS, _PASSWORD_CHARS, _ADMIN_CHARS = 32, 50, 16, 12
_LONGEST_SESSION_S, _LONGEST_IDLE_S = 12 * 3600.0, 3600.0
_SWEPT: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  the folders this warns of


class Environment:
    """Variables of one program. ``program``: which role it plays; guessed from the variables if not given."""

    def __init__(self, variables: Mapping[str, str], program: str = "") -> None:
        self.variables = variables
        self.program = program or self._guess()
        self.unreadable: list[str] = []
        self._secrets = {name: self._secret(name) for name in SECRETS}

    def get(self, name: str) -> str:
        """The variable, its default, or an empty text."""
        return self.variables.get(name, "").strip() or DEFAULTS.get(name, "")

    def number(self, name: str) -> float:
        """The variable as a number; what is none counts as 0, and the program itself refuses it."""
        try:
            return float(self.get(name))
        except ValueError:
            return 0.0

    def is_on(self, name: str) -> bool:
        """Whether a switch is on."""
        return self.get(name).lower() in _ON

    def secret(self, name: str) -> str:
        """A secret's text, from the variable or its file."""
        return self._secrets[name]

    def path_of(self, name: str) -> Path | None:
        """The file a secret is in, if it is in one."""
        text = self.variables.get(f"{name}_FILE", "")
        return Path(text) if text else None

    def _secret(self, name: str) -> str:
        path = self.path_of(name)
        if path is None:
            return self.variables.get(name, "").strip()
        try:
            return path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            self.unreadable.append(f"{name}_FILE: {type(error).__name__}")
            return ""

    def _guess(self) -> str:
        user = self.variables.get("SIGNALBOX_NATS_USER", "")
        if user in PROGRAMS:
            return user
        found = {p for p in PROGRAMS for n in self.variables if n.startswith(f"SIGNALBOX_{p.upper()}_")}
        return found.pop() if len(found) == 1 else ""


def examine(env: Environment) -> Iterator[Finding]:
    """Every weak setting of one program."""
    for text in env.unreadable:
        yield Finding("file.unreadable", text.split(":")[0], text)
    yield from _secrets(env)
    yield from _nats(env)
    if env.get("SIGNALBOX_LOG_LEVEL") == "DEBUG":
        yield Finding("log.debug", "SIGNALBOX_LOG_LEVEL", "DEBUG")
    host = env.get("SIGNALBOX_METRICS_HOST")
    if env.number("SIGNALBOX_METRICS_PORT") and not is_loopback(host):
        yield Finding("metrics.exposed", "SIGNALBOX_METRICS_HOST", f"metrics are served on {host}")
    if env.program in {"gateway", "console"}:
        yield from _pepper(env)
    if env.program == "gateway":
        yield from _gateway(env)
    elif env.program == "console":
        yield from _console(env)
    elif env.program == "worker":
        yield from _worker(env)


def _secrets(env: Environment) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for name in SECRETS:
        text, path = env.secret(name), env.path_of(name)
        if not text:
            continue
        if text in seen:
            yield Finding("secret.shared", name, f"the same text as {seen[text]}")
        seen[text] = name
        if path is None:
            yield Finding("secret.in_environment", name, "given in the environment itself")
        elif is_open_to_others(path):
            yield Finding("secret.file_open", str(path), f"mode {stat.S_IMODE(path.stat().st_mode):o}")


def is_open_to_others(path: Path) -> bool:
    """Whether a user who is neither owner nor of the group can read it; a closed folder above protects it too."""
    try:
        if not path.stat().st_mode & stat.S_IROTH:
            return False
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.absolute().parents)
    except OSError:
        return False


def _nats(env: Environment) -> Iterator[Finding]:
    user, password = env.get("SIGNALBOX_NATS_USER"), env.secret("SIGNALBOX_NATS_PASSWORD")
    seed = env.secret("SIGNALBOX_NATS_SEED")
    if not seed and not (user and password):
        yield Finding("nats.anonymous", "SIGNALBOX_NATS_USER", "no user, or neither a password nor a seed")
    elif password and len(password) < _PASSWORD_CHARS:
        yield Finding("nats.password_short", "SIGNALBOX_NATS_PASSWORD", f"{counted(len(password), 'character')}")
    if user == "admin" and env.program not in {"", "admin"}:
        yield Finding("nats.admin", "SIGNALBOX_NATS_USER", f"the {env.program} runs as admin")
    yield from _queues(env, is_anonymous=not (user or seed))
    ca_file = env.get("SIGNALBOX_NATS_CA_FILE")
    if ca_file:
        yield from certificates.examine_file(Path(ca_file))
    found = readable(env.get("SIGNALBOX_NATS_URL"), ca_file)
    if found:
        yield Finding("nats.plain", "SIGNALBOX_NATS_URL", f"no TLS to {', '.join(found)}")


def _queues(env: Environment, *, is_anonymous: bool) -> Iterator[Finding]:
    """Findings about a program's second user, of the account of queues; who has no first one is told of that."""
    if not queue_role(env.program) or is_anonymous:
        return
    user, password = env.get("SIGNALBOX_QUEUES_NATS_USER"), env.secret("SIGNALBOX_QUEUES_NATS_PASSWORD")
    if not user:
        yield Finding("queues.one_account", "SIGNALBOX_QUEUES_NATS_USER", "empty")
    elif len(password) < _PASSWORD_CHARS:
        what = counted(len(password), "character") if password else "no password"
        yield Finding("nats.password_short", "SIGNALBOX_QUEUES_NATS_PASSWORD", what)
    if user == queue_role("admin") and env.program != "admin":
        yield Finding("nats.admin", "SIGNALBOX_QUEUES_NATS_USER", f"the {env.program} runs as {user}")


def _pepper(env: Environment) -> Iterator[Finding]:
    pepper = env.secret("SIGNALBOX_KEY_PEPPER")
    if not pepper:
        yield Finding("pepper.missing", "SIGNALBOX_KEY_PEPPER", "empty")
    elif len(pepper) < _PEPPER_CHARS or len(set(pepper)) < 8:
        yield Finding(
            "pepper.short",
            "SIGNALBOX_KEY_PEPPER",
            f"{counted(len(pepper), 'character')}, {len(set(pepper))} different ones",
        )


def _gateway(env: Environment) -> Iterator[Finding]:
    listen = env.get("SIGNALBOX_GATEWAY_LISTEN")
    has_secret = bool(env.secret("SIGNALBOX_GATEWAY_SECRET"))
    is_socket = listen.startswith("unix:")
    if not is_socket and not is_loopback(listen.rpartition(":")[0]) and not has_secret:
        yield Finding("gateway.exposed", "SIGNALBOX_GATEWAY_LISTEN", f"{listen}, and no shared secret")
    if not has_secret:
        yield Finding("gateway.secret_missing", "SIGNALBOX_GATEWAY_SECRET", "empty")
    mode = env.get("SIGNALBOX_GATEWAY_SOCKET_MODE")
    if is_socket and mode[-1:] not in {"0", "1", "4", "5"}:
        yield Finding("gateway.socket_open", "SIGNALBOX_GATEWAY_SOCKET_MODE", mode)
    if env.number("SIGNALBOX_GATEWAY_STALE_KEYS_S") > 15:
        yield Finding(
            "gateway.stale_keys", "SIGNALBOX_GATEWAY_STALE_KEYS_S", f"{env.get('SIGNALBOX_GATEWAY_STALE_KEYS_S')} s"
        )


def _console(env: Environment) -> Iterator[Finding]:
    key = env.secret("SIGNALBOX_CONSOLE_SECRET_KEY")
    if not key:
        yield Finding("console.key_missing", "SIGNALBOX_CONSOLE_SECRET_KEY", "empty")
    elif len(key) < _KEY_CHARS or len(set(key)) < 8:
        yield Finding("console.key_short", "SIGNALBOX_CONSOLE_SECRET_KEY", f"{counted(len(key), 'character')}")
    for host in env.get("SIGNALBOX_CONSOLE_ALLOWED_HOSTS").split(","):
        if host.strip().startswith(("*", ".")):
            yield Finding("console.any_host", "SIGNALBOX_CONSOLE_ALLOWED_HOSTS", host.strip())
    yield from _console_network(env)
    admin = env.secret("SIGNALBOX_CONSOLE_ADMIN_PASSWORD")
    if admin and len(admin) < _ADMIN_CHARS:
        yield Finding("console.weak_admin", "SIGNALBOX_CONSOLE_ADMIN_PASSWORD", f"{counted(len(admin), 'character')}")
    session_s = env.number("SIGNALBOX_CONSOLE_SESSION_S")
    idle_s = env.number("SIGNALBOX_CONSOLE_IDLE_S")
    if session_s > _LONGEST_SESSION_S or idle_s > _LONGEST_IDLE_S:
        yield Finding("console.long_session", "SIGNALBOX_CONSOLE_SESSION_S", f"{session_s:g} s, {idle_s:g} s idle")
    for name, most in (("ACCOUNT", 10), ("ADDRESS", 100)):
        limit = env.number(f"SIGNALBOX_CONSOLE_LOGIN_PER_{name}")
        if limit > most:
            yield Finding("console.loose_throttle", f"SIGNALBOX_CONSOLE_LOGIN_PER_{name}", f"{limit:g}")
    if not env.get("SIGNALBOX_CONSOLE_REPOSITORY_ROOTS"):
        yield Finding("console.any_path", "SIGNALBOX_CONSOLE_REPOSITORY_ROOTS", "empty")
    module = env.variables.get("DJANGO_SETTINGS_MODULE", "console.settings")
    if module != "console.settings":
        yield Finding("console.other_settings", "DJANGO_SETTINGS_MODULE", module)


def _console_network(env: Environment) -> Iterator[Finding]:
    listen = env.get("SIGNALBOX_CONSOLE_LISTEN")
    is_near = is_loopback(listen.rpartition(":")[0])
    if not is_near and not env.is_on("SIGNALBOX_CONSOLE_IS_HTTPS"):
        yield Finding("console.no_https", "SIGNALBOX_CONSOLE_IS_HTTPS", f"off on {listen}")
    if env.is_on("SIGNALBOX_CONSOLE_TRUST_PROXY") and not is_near:
        yield Finding("console.forged_proxy", "SIGNALBOX_CONSOLE_TRUST_PROXY", f"on, on {listen}")
    for origin in env.get("SIGNALBOX_CONSOLE_TRUSTED_ORIGINS").split(","):
        if origin.strip().startswith("http://"):
            yield Finding("console.plain_origin", "SIGNALBOX_CONSOLE_TRUSTED_ORIGINS", origin)
    url = env.secret("SIGNALBOX_CONSOLE_DATABASE_URL")
    host = urlsplit(url).hostname or ""
    mode = dict(parse_qsl(urlsplit(url).query)).get("sslmode", "")
    if url and not is_loopback(host) and mode not in {"verify-ca", "verify-full"}:
        yield Finding(
            "console.plain_database",
            "SIGNALBOX_CONSOLE_DATABASE_URL",
            f"{host}: {f'sslmode={mode}' if mode else 'no sslmode'}",
        )


def _worker(env: Environment) -> Iterator[Finding]:
    folder = env.get("SIGNALBOX_WORKER_LOCK_DIR")
    if not folder or folder.startswith(_SWEPT):
        yield Finding(
            "worker.lock_in_tmp", "SIGNALBOX_WORKER_LOCK_DIR", folder or "empty: the folder for temporary files"
        )
    if folder and Path(folder).is_dir():
        yield from lock_folder(Path(folder))
    if env.get("SIGNALBOX_WORKER_SANDBOX") == "off":
        yield Finding("worker.no_sandbox", "SIGNALBOX_WORKER_SANDBOX", "off")
    if not env.get("SIGNALBOX_WORKER_MODEL_FOLDERS"):
        yield Finding("worker.reads_everything", "SIGNALBOX_WORKER_MODEL_FOLDERS", "empty")
    if os.geteuid() == 0 and not env.get("SIGNALBOX_WORKER_RUNNER_USER"):
        yield Finding("worker.runner_is_root", "SIGNALBOX_WORKER_RUNNER_USER", "empty, as root")
    if env.get("SIGNALBOX_WORKER_INTERVAL_LOG"):
        yield Finding("worker.interval_log", "SIGNALBOX_WORKER_INTERVAL_LOG", "set")


def lock_folder(folder: Path) -> Iterator[Finding]:
    """What is wrong with the folder of the kernel locks."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IWOTH:
        yield Finding("worker.lock_open", str(folder), f"mode {mode:o}")
    if kind := remote_kind(folder):
        yield Finding("worker.lock_remote", str(folder), f"on {kind}")
