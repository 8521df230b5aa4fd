"""How this process runs: one frozen object, built once at the door and passed down.

Each setting is one field of `Settings` with its sentence, example and check beside it; `TABLE` is made from
the fields, and loading, errors, the reference page and `.env.example` are made from `TABLE`. Precedence is
flags > environment > file > default. What is served (namespaces, policies) is config, not settings, and YAML
is unknown here: the file arrives as a mapping.

`load` reads nothing from disk. `finish` does: it generates and reads the credentials a loopback gateway may
make for itself, and refuses what a reachable one must not run with.
"""

from __future__ import annotations

import dataclasses
import difflib
import fcntl
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from tooldock.errors import SettingsError
from tooldock.paths import NAMESPACE_NAME, Paths, default_data_dir

Network = IPv4Network | IPv6Network
PortRole = Literal["core", "manager", "bridge"]

PROTOCOL_VERSIONS = ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")

SHORTEST_TOKEN = 16
"""Characters; anything shorter can be guessed by someone who may try."""

_UNSET: Any = object()
_MIB = 1024 * 1024


class _Refused(Exception):
    """A value that does not fit; the text completes the sentence "NAME ..."."""


# Reading one value: from what a flag, the environment or a YAML file gave to the type of the field.

Reader = Callable[[Any], Any]


def _text(raw: Any) -> str:
    if not isinstance(raw, str | int | float) or isinstance(raw, bool):
        raise _Refused("must be text")
    return str(raw).strip()


def _secret(raw: Any) -> str:
    if not isinstance(raw, str):
        raise _Refused("must be text; in a YAML file put it in quotes")
    value = raw.strip()
    if not value.isascii() or not value.isprintable():
        raise _Refused("may hold printable ASCII characters only, because it travels in a header")
    return value


def _passphrase(raw: Any) -> str:
    if not isinstance(raw, str):
        raise _Refused("must be text; in a YAML file put it in quotes")
    return raw.strip()


def _whole(low: int, high: int) -> Reader:
    def read(raw: Any) -> int:
        number = raw
        if isinstance(raw, str):
            text = raw.strip()
            number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None
        if not isinstance(number, int) or isinstance(number, bool):
            raise _Refused("must be a whole number")
        if not low <= number <= high:
            raise _Refused(f"must be between {low} and {high}")
        return number

    return read


def _seconds(low: float, high: float) -> Reader:
    def read(raw: Any) -> float:
        number = raw
        if isinstance(raw, str):
            text = raw.strip()
            number = float(text) if re.fullmatch(r"[+-]?[0-9]{1,12}(\.[0-9]{1,9})?", text) else None
        if not isinstance(number, int | float) or isinstance(number, bool):
            raise _Refused("must be a number of seconds")
        if not low <= number <= high:
            raise _Refused(f"must be between {low:g} and {high:g} seconds")
        return float(number)

    return read


_SIZE_UNITS = {"": 1, "b": 1, "k": 1024, "kb": 1024, "kib": 1024, "m": _MIB, "mb": _MIB, "mib": _MIB}


def _size(low: int, high: int) -> Reader:
    whole = _whole(low, high)

    def read(raw: Any) -> int:
        if isinstance(raw, str) and (found := re.fullmatch(r"\s*([0-9]{1,12})\s*([A-Za-z]*)\s*", raw)):
            unit = _SIZE_UNITS.get(found[2].lower())
            if unit is None:
                raise _Refused("must be a number of bytes, or one with KiB or MiB")
            return int(whole(int(found[1]) * unit))
        return int(whole(raw))

    return read


_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


def _flag(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    word = str(raw).strip().lower() if isinstance(raw, str | int) else ""
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise _Refused("must be true or false")


def _path(raw: Any) -> Path:
    if isinstance(raw, Path):
        return raw
    if not isinstance(raw, str) or not raw.strip() or "\0" in raw:
        raise _Refused("must be the path of a file or directory")
    return Path(raw.strip()).expanduser()


def _choice(*words: str) -> Reader:
    def read(raw: Any) -> str:
        word = raw.strip().lower() if isinstance(raw, str) else ""
        if word not in words:
            raise _Refused(f"must be one of {', '.join(words)}")
        return word

    return read


def _list_of(item: Callable[[str], Any]) -> Reader:
    def read(raw: Any) -> tuple[Any, ...]:
        parts = raw.split(",") if isinstance(raw, str) else raw
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise _Refused("must be a list, separated by commas")
        return tuple(item(part.strip()) for part in parts if part.strip())

    return read


def _origin(text: str) -> str:
    if text == "*":
        return text
    try:
        parts = urlsplit(text)
        usable = parts.scheme and parts.netloc and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.path or parts.query or parts.fragment or parts.username is not None:
        raise _Refused("must list origins (a scheme and a host, nothing after it) or be '*'")
    return text.lower()


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError:
        raise _Refused(
            "must list networks in CIDR form; bits after the prefix length must be zero, as in 10.0.0.0/8"
        ) from None


def _host(raw: Any) -> str:
    text = raw.strip().removeprefix("[").removesuffix("]") if isinstance(raw, str) else ""
    if not re.fullmatch(r"[A-Za-z0-9_.:%-]{1,253}", text):
        raise _Refused("must be an address or a host name, without a port")
    return text


def _host_pattern(text: str) -> str:
    if not re.fullmatch(r"\*|(\*\.)?[A-Za-z0-9_.:\[\]-]{1,253}", text):
        raise _Refused("must list host names, with a port where it is not the default one")
    return text.lower()


def _protocol_version(text: str) -> str:
    if text not in PROTOCOL_VERSIONS:
        raise _Refused(f"may list only {', '.join(PROTOCOL_VERSIONS)}")
    return text


def _url(raw: Any) -> str:
    text = raw.strip() if isinstance(raw, str) else ""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise _Refused("must be a URL that starts with http:// or https://")
    return text.rstrip("/")


def _namespace(raw: Any) -> str:
    if not isinstance(raw, str) or not NAMESPACE_NAME.fullmatch(raw.strip()):
        raise _Refused("must be the name of a namespace")
    return raw.strip()


# The fields. `setting` keeps everything about one in one place.


def setting(
    default: Any,
    sentence: str,
    *,
    read: Reader,
    example: str,
    section: str,
    read_by: str = "core",
    shown_default: str | None = None,
    secret: bool = False,
    echo: bool = True,
    in_file: bool = True,
) -> Any:
    """`read_by` names the faces that use it; `echo=False` keeps what may hold a password out of errors."""
    metadata = {
        "sentence": sentence,
        "read": read,
        "example": example,
        "section": section,
        "read_by": read_by,
        "shown_default": shown_default,
        "secret": secret,
        "echo": echo and not secret,
        "in_file": in_file,
    }
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


_CREDENTIALS, _NETWORK, _DATA = "Credentials", "Listening", "Data"
_LIMITS, _WORKERS, _LOGS = "Limits", "Workers", "Logs and audit"
_MCP, _MANAGER, _POLICY, _NOTIFY, _BRIDGE = "MCP", "Manager", "Policy", "Notifications", "Bridge"

_PLANNED = (_MANAGER, _POLICY, _NOTIFY, _BRIDGE)
"""Sections whose reader is not there yet. Their values are checked all the same, so that a file written for a later
version is not refused by this one."""
_PLANNED_NAMES = ("MANAGER_PORT", "BRIDGE_PORT", "RATE_LIMIT_DISABLED")
_NOT_YET = "Not in this version: the value is checked and has no effect."


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    bearer_token: str | None = setting(
        None,
        "The credential callers send as `Authorization: Bearer`.",
        read=_secret,
        example="BEARER_TOKEN=$(openssl rand -hex 32)",
        section=_CREDENTIALS,
        read_by="core, manager, bridge",
        secret=True,
    )
    manager_internal_token: str | None = setting(
        None,
        "Shared by core and manager: with it the manager may ask core to reload.",
        read=_secret,
        example="MANAGER_INTERNAL_TOKEN=$(openssl rand -hex 32)",
        section=_CREDENTIALS,
        read_by="core, manager",
        secret=True,
    )
    operator_token: str | None = setting(
        None,
        "The credential of a person who approves calls and edits policy; never give it to a model.",
        read=_secret,
        example="OPERATOR_TOKEN=$(openssl rand -hex 32)",
        section=_CREDENTIALS,
        read_by="core, console",
        secret=True,
    )
    secrets_key: str | None = setting(
        None,
        "The passphrase `secrets.enc` is encrypted with.",
        read=_passphrase,
        example="SECRETS_KEY=$(openssl rand -hex 32)",
        section=_CREDENTIALS,
        read_by="core, manager",
        secret=True,
    )
    allow_insecure_secrets: bool = setting(
        False,
        "Lets a gateway that others can reach keep a generated secrets key in its own data directory.",
        read=_flag,
        example="ALLOW_INSECURE_SECRETS=1",
        section=_CREDENTIALS,
        read_by="core, manager",
    )
    auth_disabled: bool = setting(
        False,
        "Answers without any credential; accepted on loopback only.",
        read=_flag,
        example="AUTH_DISABLED=true",
        section=_CREDENTIALS,
        read_by="core, manager, bridge",
    )

    host: str = setting(
        "127.0.0.1",
        "The address to listen on. Anything but loopback counts as production.",
        read=_host,
        example="HOST=0.0.0.0",
        section=_NETWORK,
        read_by="core, manager, bridge",
    )
    port: int | None = setting(
        None,
        "The port of the one process that is started; wins over the ports by role. 0 takes a free one.",
        read=_whole(0, 65535),
        example="PORT=8000",
        section=_NETWORK,
        read_by="core, manager, bridge",
    )
    core_port: int = setting(
        8000, "The port of core.", read=_whole(0, 65535), example="CORE_PORT=8000", section=_NETWORK
    )
    manager_port: int = setting(
        8001,
        "The port of the manager.",
        read=_whole(0, 65535),
        example="MANAGER_PORT=8001",
        section=_NETWORK,
        read_by="manager",
    )
    bridge_port: int = setting(
        9400,
        "The port of the bridge.",
        read=_whole(0, 65535),
        example="BRIDGE_PORT=9400",
        section=_NETWORK,
        read_by="bridge",
    )
    cors_origins: tuple[str, ...] = setting(
        (),
        "Origins whose pages may call, separated by commas; `*` for any. Unset: loopback origins only.",
        read=_list_of(_origin),
        example="CORS_ORIGINS=https://chat.example.org",
        section=_NETWORK,
        read_by="core, manager, bridge",
        shown_default="loopback origins",
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Host names requests may be addressed to; `*` for any. Unset: on loopback its names, elsewhere any.",
        read=_list_of(_host_pattern),
        example="ALLOWED_HOSTS=tools.example.org",
        section=_NETWORK,
        read_by="core, manager, bridge",
        shown_default="by the bind",
    )
    trusted_proxies: tuple[Network, ...] = setting(
        (),
        "Networks of reverse proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.",
        read=_list_of(_network),
        example="TRUSTED_PROXIES=10.0.0.0/8",
        section=_NETWORK,
        read_by="core, manager, bridge",
        shown_default="none",
    )
    internal_allowed_cidrs: tuple[Network, ...] = setting(
        (ip_network("172.30.0.10/32"), ip_network("127.0.0.1/32"), ip_network("::1/128")),
        "Networks a reload signal may come from.",
        read=_list_of(_network),
        example="INTERNAL_ALLOWED_CIDRS=172.30.0.10/32,127.0.0.1/32,::1/128",
        section=_NETWORK,
    )
    tls_cert: Path | None = setting(  # noqa: RUF009
        None,
        "Certificate chain (PEM); with `TLS_KEY` the listener speaks HTTPS.",
        read=_path,
        example="TLS_CERT=/etc/tooldock/tls/cert.pem",
        section=_NETWORK,
        read_by="core, manager, bridge",
    )
    tls_key: Path | None = setting(  # noqa: RUF009
        None,
        "The certificate's private key (PEM).",
        read=_path,
        example="TLS_KEY=/etc/tooldock/tls/key.pem",
        section=_NETWORK,
        read_by="core, manager, bridge",
    )
    tls_key_password: str | None = setting(
        None,
        "Opens `TLS_KEY` when that file is encrypted.",
        read=_passphrase,
        example="TLS_KEY_PASSWORD=...",
        section=_NETWORK,
        read_by="core, manager, bridge",
        secret=True,
    )
    metrics_public: bool = setting(
        False,
        "Serves `/metrics` without a credential.",
        read=_flag,
        example="METRICS_PUBLIC=true",
        section=_NETWORK,
        read_by="core, manager, bridge",
    )

    data_dir: Path = setting(  # noqa: RUF009
        default_data_dir,
        "Where tools, environments, logs and state live.",
        read=_path,
        example="DATA_DIR=/srv/tooldock",
        section=_DATA,
        read_by="every command",
        shown_default="`/data` in a container, else `./tooldock_data`",
        in_file=False,
    )
    venvs_dir: Path | None = setting(  # noqa: RUF009
        None,
        "Where environments are built, when not in the data directory.",
        read=_path,
        example="VENVS_DIR=/var/cache/tooldock/venvs",
        section=_DATA,
        shown_default="`venvs` in the data directory",
    )
    uv_cache_dir: Path | None = setting(  # noqa: RUF009
        None,
        "The package cache; on the same file system as the environments, installing is linking.",
        read=_path,
        example="UV_CACHE_DIR=/var/cache/tooldock/uv",
        section=_DATA,
        shown_default="`.cache` beside the environments",
    )

    max_request_size: int = setting(
        4 * _MIB,
        "Bytes a request body may have.",
        read=_size(1024, 1024 * _MIB),
        example="MAX_REQUEST_SIZE=4MiB",
        section=_LIMITS,
        read_by="core, manager",
    )
    max_output_size: int = setting(
        _MIB,
        "Bytes of a tool's result that are passed on; the rest is cut, with a marker and a count.",
        read=_size(1024, 1024 * _MIB),
        example="MAX_OUTPUT_SIZE=1048576",
        section=_LIMITS,
        read_by="core, bridge",
    )
    tool_call_timeout_seconds: float = setting(
        60.0,
        "Seconds a call may take, unless its tool or namespace says otherwise.",
        read=_seconds(0.05, 86400),
        example="TOOL_CALL_TIMEOUT_SECONDS=60",
        section=_LIMITS,
        read_by="core, bridge",
    )
    namespace_max_concurrency: int = setting(
        128,
        "Calls one namespace runs at a time.",
        read=_whole(1, 100_000),
        example="NAMESPACE_MAX_CONCURRENCY=128",
        section=_LIMITS,
        read_by="core, bridge",
    )
    namespace_max_queue: int = setting(
        1024,
        "Calls that may wait for one namespace; further ones are told to come back.",
        read=_whole(0, 1_000_000),
        example="NAMESPACE_MAX_QUEUE=1024",
        section=_LIMITS,
        read_by="core, bridge",
    )
    rate_limit_disabled: bool = setting(
        False,
        "Switches the rate limit of the bridge off.",
        read=_flag,
        example="RATE_LIMIT_DISABLED=true",
        section=_LIMITS,
        read_by="bridge",
    )
    drain_seconds: float = setting(
        10.0,
        "Seconds calls in flight may take to finish at a reload or shutdown.",
        read=_seconds(0, 3600),
        example="DRAIN_SECONDS=10",
        section=_LIMITS,
        read_by="core, manager, bridge",
    )

    worker_start: Literal["auto", "fork", "spawn"] = setting(
        "auto",
        "How a worker without dependencies of its own starts: `fork` from a warm parent, `spawn` afresh, "
        "or `auto` for what the platform does safely.",
        read=_choice("auto", "fork", "spawn"),
        example="WORKER_START=auto",
        section=_WORKERS,
    )
    worker_eager_limit: int = setting(
        50,
        "Up to this many namespaces start their worker at once; beyond, with the first call.",
        read=_whole(0, 100_000),
        example="WORKER_EAGER_LIMIT=50",
        section=_WORKERS,
    )
    worker_idle_seconds: float = setting(
        900.0,
        "A worker without a call for this long is stopped until the next one; 0 keeps it for ever.",
        read=_seconds(0, 31_536_000),
        example="WORKER_IDLE_SECONDS=900",
        section=_WORKERS,
    )
    worker_ready_timeout_seconds: float = setting(
        30.0,
        "Seconds a starting worker may take to import its tools.",
        read=_seconds(0.1, 3600),
        example="WORKER_READY_TIMEOUT_SECONDS=30",
        section=_WORKERS,
    )
    worker_grace_seconds: float = setting(
        2.0,
        "Seconds a call past its deadline may take to yield before its worker is replaced.",
        read=_seconds(0, 3600),
        example="WORKER_GRACE_SECONDS=2",
        section=_WORKERS,
    )
    worker_ping_seconds: float = setting(
        5.0,
        "Seconds between two checks that a worker still answers.",
        read=_seconds(0.1, 3600),
        example="WORKER_PING_SECONDS=5",
        section=_WORKERS,
    )
    worker_max_frame: int = setting(
        16 * _MIB,
        "Bytes one message between core and a worker may have.",
        read=_size(65536, 1024 * _MIB),
        example="WORKER_MAX_FRAME=16MiB",
        section=_WORKERS,
    )
    environment_build_timeout_seconds: float = setting(
        600.0,
        "Seconds installing a namespace's requirements may take.",
        read=_seconds(1, 86400),
        example="ENVIRONMENT_BUILD_TIMEOUT_SECONDS=600",
        section=_WORKERS,
    )

    log_level: Literal["debug", "info", "warning", "error", "critical"] = setting(
        "info",
        "The least serious event that is logged.",
        read=_choice("debug", "info", "warning", "error", "critical"),
        example="LOG_LEVEL=info",
        section=_LOGS,
        read_by="every command",
    )
    log_format: Literal["auto", "pretty", "json"] = setting(
        "auto",
        "`pretty` for people, `json` for programs, `auto` for whichever reads standard error.",
        read=_choice("auto", "pretty", "json"),
        example="LOG_FORMAT=json",
        section=_LOGS,
        read_by="every command",
    )
    log_retention_days: int = setting(
        30,
        "Days audit files and worker logs are kept; 0 keeps them for ever.",
        read=_whole(0, 36500),
        example="LOG_RETENTION_DAYS=30",
        section=_LOGS,
        read_by="core, manager, bridge",
    )
    audit_enabled: bool = setting(
        True,
        "Writes one audit line a call; switching it off is shown in health.",
        read=_flag,
        example="AUDIT_ENABLED=true",
        section=_LOGS,
        read_by="core, manager, bridge",
    )

    mcp_supported_versions: tuple[str, ...] = setting(
        PROTOCOL_VERSIONS,
        "Protocol revisions that are spoken, separated by commas.",
        read=_list_of(_protocol_version),
        example="MCP_SUPPORTED_VERSIONS=" + ",".join(PROTOCOL_VERSIONS),
        section=_MCP,
        read_by="core, manager",
    )
    mcp_session_ttl_hours: float = setting(
        24.0,
        "Hours after which an unused session is forgotten.",
        read=lambda raw: _hours(raw),
        example="MCP_SESSION_TTL_HOURS=24",
        section=_MCP,
        read_by="core, manager",
    )
    mcp_max_sessions: int = setting(
        20_000,
        "MCP sessions that may exist at once; more are refused until some end or expire.",
        read=_whole(1, 1_000_000),
        example="MCP_MAX_SESSIONS=20000",
        section=_MCP,
        read_by="core, manager",
    )
    mcp_max_sessions_per_caller: int = setting(
        12_000,
        "MCP sessions that one caller may have at once.",
        read=_whole(1, 1_000_000),
        example="MCP_MAX_SESSIONS_PER_CALLER=12000",
        section=_MCP,
        read_by="core, manager",
    )
    mcp_strict: bool = setting(
        True,
        "Holds clients to the media type, version header and initialization rules of the protocol.",
        read=_flag,
        example="MCP_STRICT=false",
        section=_MCP,
        read_by="core, manager",
    )
    enable_legacy_mcp: bool = setting(
        True,
        "Serves the HTTP+SSE transport of revision 2024-11-05 as well.",
        read=_flag,
        example="ENABLE_LEGACY_MCP=true",
        section=_MCP,
        read_by="core, manager",
    )

    core_url: str = setting(
        "http://127.0.0.1:8000",
        "Where the manager and the command line reach core.",
        read=_url,
        example="CORE_URL=http://172.30.0.11:8000",
        section=_MANAGER,
        read_by="manager, command line",
        echo=False,
    )
    enable_fs_watcher: bool = setting(
        False,
        "Reloads by itself when files in the tools directory change.",
        read=_flag,
        example="ENABLE_FS_WATCHER=true",
        section=_MANAGER,
        read_by="manager",
    )
    fs_watcher_debounce_ms: int = setting(
        1500,
        "Milliseconds of quiet after a change before the watcher reloads.",
        read=_whole(0, 600_000),
        example="FS_WATCHER_DEBOUNCE_MS=1500",
        section=_MANAGER,
        read_by="manager",
    )

    strict_security_mode: bool = setting(
        True,
        "Asks for confirmation of every mutating tool, also where a policy forgot to, and refuses path "
        "arguments without a root.",
        read=_flag,
        example="STRICT_SECURITY_MODE=true",
        section=_POLICY,
        read_by="core, manager, bridge",
    )
    approval_wait_seconds: float = setting(
        30.0,
        "Seconds a call waits for a person's approval before it answers that one is needed.",
        read=_seconds(0, 3600),
        example="APPROVAL_WAIT_SECONDS=30",
        section=_POLICY,
        read_by="core, manager, bridge",
    )

    notifications_enabled: bool | None = setting(
        None,
        "Sends notifications. Unset: when a target is configured.",
        read=_flag,
        example="NOTIFICATIONS_ENABLED=true",
        section=_NOTIFY,
        read_by="core, bridge",
        shown_default="when configured",
    )
    gotify_url: str | None = setting(
        None,
        "The Gotify server notifications go to.",
        read=_url,
        example="GOTIFY_URL=https://gotify.example.org",
        section=_NOTIFY,
        read_by="core, bridge",
        echo=False,
    )
    gotify_token: str | None = setting(
        None,
        "The application token of that server.",
        read=_secret,
        example="GOTIFY_TOKEN=...",
        section=_NOTIFY,
        read_by="core, bridge",
        secret=True,
    )

    server_name: str = setting(
        "burlymcp",
        "The name the bridge reports.",
        read=_text,
        example="SERVER_NAME=burlymcp",
        section=_BRIDGE,
        read_by="bridge",
    )
    bridge_namespace: str = setting(
        "system",
        "The namespace the bridge serves.",
        read=_namespace,
        example="BRIDGE_NAMESPACE=system",
        section=_BRIDGE,
        read_by="bridge",
    )
    policy_file: Path | None = setting(  # noqa: RUF009
        None,
        "Replaces `tools.yaml` of the namespace the bridge serves.",
        read=_path,
        example="POLICY_FILE=/config/tools.yaml",
        section=_BRIDGE,
        read_by="bridge",
        shown_default="the namespace's own",
    )

    @classmethod
    def load(cls, flags: Mapping[str, Any], environ: Mapping[str, str], file: Mapping[str, Any]) -> Settings:
        """Flags over environment over file over default; every problem is reported at once.

        Names are case-insensitive in `flags` and `file`. A flag that is None, and a value that is empty,
        is not set. Unknown environment names belong to somebody else and are ignored.
        """
        problems: list[tuple[str, str]] = []
        given_flags = _by_name(flags, "command line", problems)
        given_file = _by_name(file, "config.yaml", problems)
        values: dict[str, Any] = {}
        for spec in TABLE:
            value = spec.pick(given_flags, environ, given_file, problems)
            if value is not _UNSET:
                values[spec.attribute] = value
        settings = cls(**values)
        problems.extend(_contradictions(settings))
        if problems:
            raise _error(problems)
        return settings

    def port_for(self, role: PortRole) -> int:
        """PORT belongs to the one process that is started, so it wins over the port of its role."""
        if self.port is not None:
            return self.port
        return {"core": self.core_port, "manager": self.manager_port, "bridge": self.bridge_port}[role]

    @property
    def loopback(self) -> bool:
        return is_loopback(self.host)

    def paths(self) -> Paths:
        return Paths(self.data_dir, self.venvs_dir)

    def __repr__(self) -> str:
        shown = (f"{spec.attribute}={spec.masked(getattr(self, spec.attribute))}" for spec in TABLE)
        return f"Settings({', '.join(shown)})"


def _hours(raw: Any) -> float:
    try:
        return float(_seconds(0.01, 8760)(raw))
    except _Refused:
        raise _Refused("must be a number of hours between 0.01 and 8760") from None


@dataclass(frozen=True, slots=True)
class Spec:
    """One row of the table."""

    attribute: str
    name: str
    default: Any
    sentence: str
    example: str
    section: str
    read_by: str
    shown_default: str
    secret: bool
    echo: bool
    in_file: bool
    read: Reader

    def pick(
        self,
        flags: Mapping[str, Any],
        environ: Mapping[str, str],
        file: Mapping[str, Any],
        problems: list[tuple[str, str]],
    ) -> Any:
        """The winning value, or `_UNSET`; a value that does not fit becomes a problem."""
        if not self.in_file and file.get(self.name) is not None:
            problems.append((self.name, "cannot be set in config.yaml, because it says where that file is"))
        for source, raw in (
            ("on the command line", flags.get(self.name)),
            ("in the environment", environ.get(self.name)),
            ("in config.yaml", file.get(self.name) if self.in_file else None),
        ):
            if raw is None or (isinstance(raw, str) and not raw.strip()):
                continue
            try:
                return self.read(raw)
            except _Refused as refused:
                shown = f", not {str(raw)[:80]!r}" if self.echo else ""
                problems.append((self.name, f"{refused}{shown} ({source})"))
                return _UNSET
        return _UNSET

    def masked(self, value: Any) -> str:
        return "'***'" if self.secret and value is not None else repr(value)


def _spec(attribute: dataclasses.Field[Any]) -> Spec:
    about = attribute.metadata
    default = None if attribute.default is dataclasses.MISSING else attribute.default
    return Spec(
        attribute=attribute.name,
        name=attribute.name.upper(),
        default=default,
        sentence=about["sentence"],
        example=about["example"],
        section=about["section"],
        read_by=about["read_by"],
        shown_default=about["shown_default"] or _shown(default),
        secret=about["secret"],
        echo=about["echo"],
        in_file=about["in_file"],
        read=about["read"],
    )


def _shown(default: Any) -> str:
    if default is None:
        return "unset"
    return f"`{_plain(default)}`"


def _plain(value: Any) -> str:
    """A value as one writes it in the environment."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


TABLE: tuple[Spec, ...] = tuple(_spec(attribute) for attribute in dataclasses.fields(Settings))
_BY_NAME = {spec.name: spec for spec in TABLE}


def _by_name(given: Mapping[str, Any], where: str, problems: list[tuple[str, str]]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for key, value in given.items():
        name = str(key).upper().replace("-", "_")
        if name in _BY_NAME:
            known[name] = value
            continue
        near = difflib.get_close_matches(name, _BY_NAME, n=1)
        hint = f"; the nearest one is {near[0].lower()}" if near else ""
        problems.append((str(key)[:80], f"is not a setting ({where}){hint}"))
    return known


def _contradictions(settings: Settings) -> list[tuple[str, str]]:
    """What no single value shows."""
    problems: list[tuple[str, str]] = []
    for one, other in (("tls_cert", "tls_key"), ("gotify_url", "gotify_token")):
        if (getattr(settings, one) is None) != (getattr(settings, other) is None):
            missing = other if getattr(settings, other) is None else one
            present = one if missing == other else other
            problems.append((missing.upper(), f"is missing: {present.upper()} is set, and they go together"))
    if settings.auth_disabled and not settings.loopback:
        problems.append(
            ("AUTH_DISABLED", f"is for loopback only, and HOST is {settings.host}; set BEARER_TOKEN instead")
        )
    if settings.operator_token is not None and settings.operator_token == settings.bearer_token:
        problems.append(
            (
                "OPERATOR_TOKEN",
                "must differ from BEARER_TOKEN: whoever calls tools must not approve the calls",
            )
        )
    if not settings.mcp_supported_versions:
        problems.append(("MCP_SUPPORTED_VERSIONS", "must list at least one protocol revision"))
    return problems


def _error(problems: list[tuple[str, str]]) -> SettingsError:
    lines = []
    for name, problem in problems:
        spec = _BY_NAME.get(name)
        lines.append(f"  {name} {problem}." + (f" Example: {spec.example}" if spec else ""))
    count = "One setting" if len(lines) == 1 else f"{len(lines)} settings"
    return SettingsError(
        f"{count} cannot be used:\n" + "\n".join(lines),
        problems=[
            {
                "name": name,
                "problem": problem,
                "example": spec.example if (spec := _BY_NAME.get(name)) else "",
            }
            for name, problem in problems
        ],
    )


# Credentials: what a loopback gateway makes for itself, and what a reachable one must be given.

_GENERATED = ("bearer_token", "manager_internal_token", "operator_token", "secrets_key")
_REQUIRED = ("bearer_token", "manager_internal_token", "secrets_key")
_PLACEHOLDER = "change_me"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on `host`."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def finish(settings: Settings, paths: Paths) -> Settings:
    """The settings with their credentials complete; call after `paths.prepare()`.

    On loopback missing ones are generated once, into files only their owner can read, and read from there by
    every later process. Elsewhere the required ones must be given, must not be placeholders and must be long.
    """
    if settings.auth_disabled and not settings.loopback:
        raise _error(_contradictions(settings))
    if settings.loopback:
        generated: tuple[str, ...] = _GENERATED
    else:
        generated = ("secrets_key",) if settings.allow_insecure_secrets else ()
        if problems := _production_problems(settings, generated):
            raise _error(problems)
    missing = [name for name in generated if getattr(settings, name) is None]
    made: dict[str, Any] = {name: _stored_token(paths.token(name)) for name in missing}
    return dataclasses.replace(settings, **made)


def warnings_for(settings: Settings) -> tuple[str, ...]:
    """What is allowed on this bind and still deserves a line at start."""
    found = []
    if settings.auth_disabled:
        found.append("AUTH_DISABLED is set: every program on this machine can call every tool.")
    for name in _GENERATED:
        value = getattr(settings, name)
        if value is not None and value.lower().startswith(_PLACEHOLDER):
            found.append(f"{name.upper()} is still a placeholder; a gateway others can reach would not start.")
    if settings.allow_insecure_secrets and not settings.loopback:
        found.append("ALLOW_INSECURE_SECRETS is set: the secrets key may lie beside the secrets it protects.")
    if "*" in settings.cors_origins:
        found.append("CORS_ORIGINS is '*': any web page may call, if it has a credential.")
    return tuple(found)


def _production_problems(settings: Settings, generated: tuple[str, ...]) -> list[tuple[str, str]]:
    problems = []
    for name in _GENERATED:
        value = getattr(settings, name)
        if value is None:
            if name in _REQUIRED and name not in generated:
                problems.append((name.upper(), f"is required when HOST is {settings.host}, not loopback"))
        elif value.lower().startswith(_PLACEHOLDER):
            problems.append((name.upper(), "is still the placeholder of an example; set a value of your own"))
        elif len(value) < SHORTEST_TOKEN:
            problems.append((name.upper(), f"is too short; use {SHORTEST_TOKEN} characters or more"))
    return problems


def _stored_token(file: Path) -> str:
    """The credential in `file`, generated if there is none.

    Two processes may start at once. The lock makes one of them the writer, and the rename shows the file to
    the other only when it is complete, also when the writer is killed half-way.
    """
    lock = os.open(file.parent / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            _write_private(file, secrets.token_urlsafe(32))
    except OSError as error:
        raise SettingsError(
            f"A credential could not be written to {file} ({error.strerror}). Make its directory writable, "
            f"or set {file.name.upper()}."
        ) from error
    finally:
        os.close(lock)
    return _read_private(file)


def _write_private(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.new")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="ascii") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, file)


def _read_private(file: Path) -> str:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise SettingsError(
            f"The credential in {file} cannot be read ({error.strerror}). Set {file.name.upper()}, or remove "
            "the file to have a new one made."
        ) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
        os.close(descriptor)
        raise SettingsError(
            f"{file} holds a credential, but others than its owner may read or change it. Remove it to have "
            f"a new one made, or, if nobody else saw it, run: chmod 600 {file}"
        )
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as stream:
        value = stream.read(4096).strip()
    if not value or not value.isascii():
        raise SettingsError(f"{file} should hold a credential and does not. Remove it to have a new one made.")
    return value


# Text made from the table.


def reference_page() -> str:
    """`docs/reference/settings.md`."""
    lines = [
        "# Settings",
        "",
        "<!-- Made by `python -m tooldock.settings reference`; edit the table in `settings.py` instead. -->",
        "",
        "A setting is taken from the command line, else from the environment, else from the `settings:` part",
        "of `config.yaml` in the data directory (the same names, in lower case), else from its default.",
        "An empty value counts as not set. Sizes are bytes, or a number with `KiB` or `MiB`.",
        "",
        "A listener on anything but loopback counts as production: there `BEARER_TOKEN`,",
        f"`MANAGER_INTERNAL_TOKEN` and `SECRETS_KEY` are required, with {SHORTEST_TOKEN} characters or more",
        "and no `change_me`. On loopback missing ones, and `OPERATOR_TOKEN`, are generated once, into files",
        "below `state/keys` that only their owner can read.",
    ]
    for section in dict.fromkeys(spec.section for spec in TABLE):
        lines += ["", f"## {section}", ""]
        lines += [_NOT_YET, ""] if section in _PLANNED else []
        lines += ["| name | default | what it does | read by |", "|---|---|---|---|"]
        lines += [
            f"| `{spec.name}` | {spec.shown_default} | {spec.sentence}"
            f"{f' {_NOT_YET}' if spec.name in _PLANNED_NAMES else ''} | {spec.read_by} |"
            for spec in TABLE
            if spec.section == section
        ]
    return "\n".join(lines) + "\n"


_EXAMPLE_VALUES = {
    "BEARER_TOKEN": "change_me",
    "MANAGER_INTERNAL_TOKEN": "change_me_internal",
    "SECRETS_KEY": "",
}


def env_example() -> str:
    """`.env.example`: what production requires is there to fill in, the rest is shown commented out."""
    lines = [
        "# Copy to .env and fill in. Commented lines show the default, or an example where there is none.",
        "# ToolDock reads the environment, not this file: `set -a; . ./.env; set +a`, or a container's env file.",
        "# Made by `python -m tooldock.settings env`; docs/reference/settings.md explains each one.",
    ]
    for section in dict.fromkeys(spec.section for spec in TABLE):
        lines += ["", f"# {section}{' (not in this version)' if section in _PLANNED else ''}"]
        lines += [_example_line(spec) for spec in TABLE if spec.section == section]
    lines += ["", "# The user and group containers run as (read by compose files)"]
    lines += ["# TOOLDOCK_UID=1000", "# TOOLDOCK_GID=1000"]
    return "\n".join(lines) + "\n"


def _example_line(spec: Spec) -> str:
    if spec.name in _EXAMPLE_VALUES:
        return f"{spec.name}={_EXAMPLE_VALUES[spec.name]}"
    if spec.secret:
        return f"# {spec.name}="
    if spec.default is None or spec.default == ():
        return f"# {spec.example}"
    return f"# {spec.name}={_plain(spec.default)}"


if __name__ == "__main__":
    sys.stdout.write(env_example() if sys.argv[1:] == ["env"] else reference_page())
