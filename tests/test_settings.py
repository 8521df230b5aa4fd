from __future__ import annotations

import dataclasses
import multiprocessing
import os
import re
import stat
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from tooldock.errors import SettingsError
from tooldock.paths import Paths
from tooldock.settings import (
    PROTOCOL_VERSIONS,
    TABLE,
    Settings,
    env_example,
    finish,
    is_loopback,
    reference_page,
    warnings_for,
)

REPOSITORY = Path(__file__).parent.parent
LONG = "x" * 32


def load(**environ: str) -> Settings:
    return Settings.load({}, environ, {})


def prepared(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "data")
    paths.prepare()
    return paths


def test_flags_win_over_environment_over_file_over_default() -> None:
    file = {"log_level": "error", "core_port": 1, "manager_port": 2}
    environ = {"LOG_LEVEL": "debug", "CORE_PORT": "3"}
    settings = Settings.load({"log_level": "critical"}, environ, file)
    assert settings.log_level == "critical"
    assert settings.core_port == 3
    assert settings.manager_port == 2
    assert settings.host == "127.0.0.1"


def test_a_flag_not_given_and_an_empty_variable_are_not_set() -> None:
    settings = Settings.load({"log_level": None}, {"LOG_LEVEL": " ", "SECRETS_KEY": ""}, {"log_level": "error"})
    assert settings.log_level == "error"
    assert settings.secrets_key is None


def test_the_defaults_are_the_documented_ones() -> None:
    settings = load()
    assert settings.max_request_size == 4 * 1024 * 1024
    assert settings.max_output_size == 1048576
    assert settings.tool_call_timeout_seconds == 60
    assert (settings.namespace_max_concurrency, settings.namespace_max_queue) == (128, 1024)
    assert (settings.worker_idle_seconds, settings.worker_eager_limit) == (900, 50)
    assert settings.internal_allowed_cidrs == tuple(map(ip_network, ("172.30.0.10/32", "127.0.0.1/32", "::1/128")))
    assert settings.mcp_supported_versions == PROTOCOL_VERSIONS
    assert settings.notifications_enabled is None
    assert settings.strict_security_mode
    assert not settings.metrics_public


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PORT", "0", 0),
        ("LOG_LEVEL", "INFO", "info"),
        ("MAX_REQUEST_SIZE", "2MiB", 2 * 1024 * 1024),
        ("MAX_REQUEST_SIZE", "64 kib", 65536),
        ("WORKER_IDLE_SECONDS", "0", 0.0),
        ("TOOL_CALL_TIMEOUT_SECONDS", "0.5", 0.5),
        ("AUTH_DISABLED", "yes", True),
        ("ENABLE_LEGACY_MCP", "off", False),
        ("HOST", "[::1]", "::1"),
        (
            "CORS_ORIGINS",
            "https://A.example, http://b.example:8080",
            ("https://a.example", "http://b.example:8080"),
        ),
        ("CORS_ORIGINS", "*", ("*",)),
        ("TRUSTED_PROXIES", "10.0.0.0/8,fd00::/8", (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))),
        ("CORE_URL", "http://core:8000/", "http://core:8000"),
        ("MCP_SUPPORTED_VERSIONS", "2025-06-18", ("2025-06-18",)),
        ("BEARER_TOKEN", f" {LONG}\n", LONG),
        ("DATA_DIR", "/srv/x", Path("/srv/x")),
        ("MCP_SESSION_TTL_HOURS", "12", 12.0),
    ],
)
def test_a_value_is_read(name: str, value: str, expected: Any) -> None:
    assert getattr(load(**{name: value}), name.lower()) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("PORT", "-1"),
        ("PORT", "8000x"),
        ("PORT", "1_000"),
        ("MAX_REQUEST_SIZE", "5 parsecs"),
        ("MAX_REQUEST_SIZE", "0"),
        ("TOOL_CALL_TIMEOUT_SECONDS", "nan"),
        ("TOOL_CALL_TIMEOUT_SECONDS", "inf"),
        ("TOOL_CALL_TIMEOUT_SECONDS", "0"),
        ("AUTH_DISABLED", "maybe"),
        ("LOG_LEVEL", "loud"),
        ("HOST", "a b"),
        ("HOST", "127.0.0.1:8000/x"),
        ("CORS_ORIGINS", "example.org"),
        ("CORS_ORIGINS", "https://example.org/path"),
        ("INTERNAL_ALLOWED_CIDRS", "10.0.0.5/8"),
        ("INTERNAL_ALLOWED_CIDRS", "everywhere"),
        ("CORE_URL", "ftp://x"),
        ("CORE_URL", "http://"),
        ("MCP_SUPPORTED_VERSIONS", "2020-01-01"),
        ("MCP_SUPPORTED_VERSIONS", ","),
        ("BRIDGE_NAMESPACE", "_system"),
        ("WORKER_START", "magic"),
        ("MCP_SESSION_TTL_HOURS", "soon"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_name_and_example(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(**{name: value})
    assert name in caught.value.message
    assert f"Example: {name}=" in caught.value.message
    assert [problem["name"] for problem in caught.value.details["problems"]] == [name]


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load({"port": "x"}, {"LOG_LEVEL": "loud"}, {"drain_seconds": [1]})
    assert all(name in caught.value.message for name in ("PORT", "LOG_LEVEL", "DRAIN_SECONDS"))
    assert caught.value.message.startswith("3 settings")


def test_an_unknown_name_in_the_file_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SettingsError, match=r"lgo_level is not a setting .* log_level"):
        Settings.load({}, {}, {"lgo_level": "info"})


def test_unknown_environment_names_belong_to_somebody_else() -> None:
    assert Settings.load({}, {"EDITOR": "vi", "LGO_LEVEL": "x"}, {}) == load()


def test_the_data_directory_cannot_be_set_in_the_file_that_lies_in_it() -> None:
    with pytest.raises(SettingsError, match=r"DATA_DIR cannot be set in config\.yaml"):
        Settings.load({}, {}, {"data_dir": "/x"})


@pytest.mark.parametrize("spec", [spec for spec in TABLE if spec.secret], ids=lambda spec: spec.name)
def test_the_value_of_a_secret_setting_is_in_no_error_and_no_repr(spec: Any) -> None:
    hidden = "s3cr3t-välue-\x01-of-it"
    others = {"GOTIFY_URL": "https://x.example"} if spec.name == "GOTIFY_TOKEN" else {}
    try:
        shown = repr(load(**{spec.name: hidden, "PORT": "1"} | others))
    except SettingsError as error:
        shown = error.message + repr(error.details)
    assert "s3cr3t" not in shown
    good = load(**{spec.name: LONG} | others)
    assert LONG not in repr(good)
    assert f"{spec.attribute}='***'" in repr(good)


def test_a_password_in_a_url_is_in_no_error() -> None:
    with pytest.raises(SettingsError) as caught:
        load(CORE_URL="ftp://user:hunter22@host")
    assert "hunter22" not in caught.value.message


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"TLS_CERT": "/c"}, "TLS_KEY"),
        ({"TLS_KEY": "/k"}, "TLS_CERT"),
        ({"GOTIFY_URL": "https://x.example"}, "GOTIFY_TOKEN"),
        ({"AUTH_DISABLED": "1", "HOST": "0.0.0.0"}, "AUTH_DISABLED"),
        ({"BEARER_TOKEN": LONG, "OPERATOR_TOKEN": LONG}, "OPERATOR_TOKEN"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(environ: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        load(**environ)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load().port = 1  # type: ignore[misc]


def test_port_wins_over_the_port_of_the_role() -> None:
    by_role = load(CORE_PORT="1", MANAGER_PORT="2", BRIDGE_PORT="3")
    assert [by_role.port_for(role) for role in ("core", "manager", "bridge")] == [1, 2, 3]
    chosen = load(CORE_PORT="1", MANAGER_PORT="2", PORT="9")
    assert [chosen.port_for(role) for role in ("core", "manager", "bridge")] == [9, 9, 9]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST.", "::ffff:127.0.0.1"]
)
def test_loopback_is_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.1", "example.org", "localhost.example.org", "", "127.1.evil"]
)
def test_everything_else_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


# Credentials.


def test_on_loopback_missing_credentials_are_generated_once(tmp_path: Path) -> None:
    paths = prepared(tmp_path)
    first, second = finish(load(), paths), finish(load(), paths)
    names = ("bearer_token", "manager_internal_token", "operator_token", "secrets_key")
    values = [getattr(first, name) for name in names]
    assert all(len(value) >= 32 for value in values)
    assert len(set(values)) == len(values)
    assert values == [getattr(second, name) for name in names]
    for name in names:
        assert stat.S_IMODE(paths.token(name).stat().st_mode) == 0o600


def test_a_given_credential_is_used_and_no_file_is_written(tmp_path: Path) -> None:
    paths = prepared(tmp_path)
    assert finish(load(BEARER_TOKEN="short"), paths).bearer_token == "short"
    assert not paths.token("bearer_token").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_credential_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    paths = prepared(tmp_path)
    value = finish(load(), paths).bearer_token
    assert value is not None
    paths.token("bearer_token").chmod(mode)
    with pytest.raises(SettingsError, match="others than its owner") as caught:
        finish(load(), paths)
    assert value not in caught.value.message


def test_a_link_in_place_of_a_credential_is_refused(tmp_path: Path) -> None:
    paths = prepared(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("somebody-elses-token\n")
    elsewhere.chmod(0o600)
    paths.token("bearer_token").symlink_to(elsewhere)
    with pytest.raises(SettingsError, match="cannot be read"):
        finish(load(), paths)


def test_an_empty_credential_file_is_refused(tmp_path: Path) -> None:
    paths = prepared(tmp_path)
    paths.token("bearer_token").touch(mode=0o600)
    with pytest.raises(SettingsError, match="should hold a credential"):
        finish(load(), paths)


def test_what_a_killed_process_left_half_written_is_replaced(tmp_path: Path) -> None:
    paths = prepared(tmp_path)
    paths.token("bearer_token.new").write_text("ha")
    assert len(finish(load(), paths).bearer_token or "") >= 32
    assert not paths.token("bearer_token.new").exists()


def _finish_elsewhere(data_dir: Path, answers: Any) -> None:
    answers.put(finish(Settings.load({}, {}, {}), Paths(data_dir)).bearer_token)


@pytest.mark.process
def test_processes_that_start_at_once_agree_on_one_credential(tmp_path: Path) -> None:
    paths = prepared(tmp_path)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=_finish_elsewhere, args=(paths.data_dir, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    values = {answers.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(60)
    answers.close()
    answers.join_thread()
    assert values == {paths.token("bearer_token").read_text().strip()}


PRODUCTION = {
    "HOST": "0.0.0.0",
    "BEARER_TOKEN": "b" * 16,
    "MANAGER_INTERNAL_TOKEN": "m" * 16,
    "SECRETS_KEY": "s" * 16,
}


def test_off_loopback_complete_credentials_are_accepted_as_given(tmp_path: Path) -> None:
    paths = prepared(tmp_path)
    settings = load(**PRODUCTION)
    assert finish(settings, paths) == settings
    assert list(paths.keys.iterdir()) == []


@pytest.mark.parametrize("name", ["BEARER_TOKEN", "MANAGER_INTERNAL_TOKEN", "SECRETS_KEY"])
@pytest.mark.parametrize("value", ["", "change_me", "CHANGE_ME_internal_and_long", "fifteen-letters"])
def test_off_loopback_missing_example_and_short_credentials_are_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name) as caught:
        finish(load(**PRODUCTION | {name: value}), prepared(tmp_path))
    assert not value or value not in caught.value.message


def test_off_loopback_an_insecure_secrets_key_must_be_asked_for(tmp_path: Path) -> None:
    paths = prepared(tmp_path)
    without = {name: value for name, value in PRODUCTION.items() if name != "SECRETS_KEY"}
    settings = finish(load(**without, ALLOW_INSECURE_SECRETS="1"), paths)
    assert settings.secrets_key == paths.token("secrets_key").read_text().strip()
    assert settings.operator_token is None
    assert any("ALLOW_INSECURE_SECRETS" in line for line in warnings_for(settings))


def test_on_loopback_a_placeholder_is_a_warning(tmp_path: Path) -> None:
    settings = finish(load(BEARER_TOKEN="change_me"), prepared(tmp_path))
    assert settings.bearer_token == "change_me"
    assert any("BEARER_TOKEN" in line for line in warnings_for(settings))


@pytest.mark.parametrize(
    ("environ", "word"), [({"AUTH_DISABLED": "1"}, "AUTH_DISABLED"), ({"CORS_ORIGINS": "*"}, "CORS_ORIGINS")]
)
def test_what_is_allowed_but_open_is_a_warning(environ: dict[str, str], word: str) -> None:
    assert any(word in line for line in warnings_for(load(**environ)))


def test_plain_settings_deserve_no_warning() -> None:
    assert warnings_for(load()) == ()


# Text made from the table.


def test_names_are_unique_and_sentences_are_sentences() -> None:
    assert len({spec.name for spec in TABLE}) == len(TABLE)
    for spec in TABLE:
        assert spec.sentence.endswith(".")
        assert "|" not in spec.sentence
        assert spec.example.startswith(f"{spec.name}=")


@pytest.mark.parametrize("spec", [spec for spec in TABLE if not spec.secret], ids=lambda spec: spec.name)
def test_every_example_is_accepted_by_its_own_setting(spec: Any) -> None:
    assert spec.read(spec.example.partition("=")[2]) is not None


@pytest.mark.parametrize(
    ("file", "make", "command"),
    [("docs/reference/settings.md", reference_page, "reference"), (".env.example", env_example, "env")],
)
def test_generated_text_is_current(file: str, make: Callable[[], str], command: str) -> None:
    text = (REPOSITORY / file).read_text("utf-8")
    assert text == make(), f"run: python -m tooldock.settings {command} > {file}"


def test_the_example_environment_loads_and_is_refused_off_loopback_only(tmp_path: Path) -> None:
    lines = [re.sub(r"^# (?=[A-Z_]+=)", "", line) for line in env_example().splitlines()]
    environ = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))
    environ.pop("GOTIFY_URL")
    environ.pop("TLS_CERT")
    environ.pop("TLS_KEY")
    paths = prepared(tmp_path)
    assert finish(Settings.load({}, environ, {}), paths).bearer_token == "change_me"
    with pytest.raises(SettingsError, match="placeholder"):
        finish(Settings.load({}, environ | {"HOST": "0.0.0.0"}, {}), paths)


def test_nothing_is_read_from_the_process_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "LOG_LEVEL", "critical")
    assert load().log_level == "info"
