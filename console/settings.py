"""Django settings, all derived from :class:`console.config.ConsoleSettings`; nothing else reads the environment."""

from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from csp.constants import NONE, SELF

from console import config
from signalbox.program.errors import Misconfigured

CONSOLE: Final = config.read()
"""The typed settings of this process; our own code reads these and not Django's."""

BASE_DIR: Final = Path(__file__).resolve().parent

DEBUG = False
SECRET_KEY = CONSOLE.signing_key()
ALLOWED_HOSTS = list(CONSOLE.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(CONSOLE.trusted_origins)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "servestatic",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "console.accounts",
    "console.audit",
    "console.outbox",
    "console.repositories",
    "console.catalog",
    "console.keys",
    "console.outbound",
    "console.queues",
    "console.jobs",
    "console.rollups",
    "console.selections",
    "console.fleet",
    "console.trials",
    "console.programs",
    "console.projector",
    "console.views",
    "console.api",
    "console.live",
]

MIDDLEWARE = [
    "console.web.middleware.NotStored",
    "django.middleware.security.SecurityMiddleware",
    "console.web.middleware.RequestIdentity",
    "console.web.middleware.Refusals",
    "servestatic.middleware.ServeStaticMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "console.web.middleware.KnownHosts",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "console.accounts.sessions.SessionLimits",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "console.web.middleware.ErrorPages",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.pages.frame.frame",
            ],
            "builtins": ["console.pages.formats", "console.pages.jobtags", "console.pages.listbar"],
        },
    }
]


_LOCK_WAIT_S: Final = 5
"""Longest wait for rows that another program has locked; then the request fails, and may be repeated."""
_TURN_S: Final = 20
"""In SQLite all writers stand in one line, and a slow disk makes it long."""
_WAL_PAGES: Final = 8192
"""Pages (32 MiB) that writers leave in the log before one of them syncs the database: a page of an index that
every batch changes is then written once for many of them."""
_TLS: Final = frozenset({"sslmode", "sslrootcert"})
_TLS_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


def _tls(query: str) -> dict[str, str]:
    """How to speak to PostgreSQL, from the URL's query. Whatever else stands there is refused, not ignored."""
    given = parse_qsl(query, keep_blank_values=True)
    options = dict(given)
    where = "SIGNALBOX_CONSOLE_DATABASE_URL:"
    if options.keys() - _TLS:  # not named: it may be the end of a password
        raise Misconfigured(f"{where} only sslmode and sslrootcert may follow the '?'; one in a password is '%3F'.")
    if len(given) > len(options):
        raise Misconfigured(f"{where} sslmode and sslrootcert stand there once each.")
    if "sslmode" in options and options["sslmode"] not in _TLS_MODES:
        raise Misconfigured(f"{where} sslmode is one of {', '.join(_TLS_MODES)}.")
    if options.get("sslrootcert") == "":
        raise Misconfigured(f"{where} sslrootcert is a file of certificates, or 'system'.")
    return options


def _database(url: str) -> dict[str, Any]:
    if not url:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": CONSOLE.data / "console.sqlite3",
            # The last to close the file writes all of it to the disk, where NATS waits for its own syncs.
            "CONN_MAX_AGE": None,
            "OPTIONS": {
                # Programs share the file: writers queue up instead of failing, readers never wait.
                "timeout": _TURN_S,
                "transaction_mode": "IMMEDIATE",
                "init_command": (
                    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-8000;"
                    f"PRAGMA wal_autocheckpoint={_WAL_PAGES};"
                ),
            },
        }
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,
        "OPTIONS": {"connect_timeout": 5, "options": f"-c lock_timeout={_LOCK_WAIT_S * 1000}", **_tls(parts.query)},
    }


DATABASES = {"default": _database(CONSOLE.database_url)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "accounts.User"
PASSWORD_HASHERS = ["console.operators.hashing.BoundedArgon2", "django.contrib.auth.hashers.PBKDF2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"

_COOKIE_PREFIX = "__Host-" if CONSOLE.is_https else ""
SESSION_COOKIE_NAME = f"{_COOKIE_PREFIX}signalbox_session"
SESSION_COOKIE_AGE = CONSOLE.session_s
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CONSOLE.is_https
CSRF_COOKIE_NAME = f"{_COOKIE_PREFIX}signalbox_csrf"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = CONSOLE.is_https
CSRF_FAILURE_VIEW = "console.pages.errors.csrf_failure"

SECURE_SSL_REDIRECT = CONSOLE.is_https
# What asks within a cluster, where HTTPS ends before the console: probes, and KEDA, which knows no header of a proxy.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^api/scaling$"]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if CONSOLE.is_https else 0
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
if CONSOLE.trust_proxy:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
X_FRAME_OPTIONS = "DENY"
# W005, W021: subdomains and preload lists are the domain owner's to decide, not one console's.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

# Alike, and the most that console.web.bodylimit takes from any caller: so only an archive is ever put on the disk.
DATA_UPLOAD_MAX_MEMORY_SIZE = FILE_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
FILE_UPLOAD_PERMISSIONS = 0o600

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = CONSOLE.data / "static"
# Served from where they lie: no collectstatic step stands between a clone and a working console.
SERVESTATIC_USE_FINDERS = True
SERVESTATIC_AUTOREFRESH = False

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "console.accounts.authentication.OperatorTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["console.api.parsers.BoundedJSON"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "URL_FORMAT_OVERRIDE": None,  # or every operation would take an undocumented ?format=
    "EXCEPTION_HANDLER": "console.web.problems.as_problem",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Signalbox console",
    "DESCRIPTION": "What operators do in the console, for programs. One token per operator.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.IsAuthenticated"],
    "SCHEMA_PATH_PREFIX": "/api",
}

# Signalbox logs JSON lines of its own (signalbox.program.log); Django's records join them there.
LOGGING_CONFIG = None
