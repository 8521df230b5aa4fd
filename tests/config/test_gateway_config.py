from __future__ import annotations

from pathlib import Path

import pytest

from tooldock.config import GatewayConfig, read_gateway
from tooldock.errors import ConfigError
from tooldock.settings import Settings


def test_no_file_means_nothing_is_set(tmp_path: Path) -> None:
    assert read_gateway(tmp_path / "config.yaml") == GatewayConfig()


def test_settings_go_to_the_settings_and_policies_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "settings:\n  log_level: debug\n  cors_origins: [https://a.example]\n"
        "policies:\n  github: {delete_issue: {confirm: human}}\n"
    )
    config = read_gateway(file)
    settings = Settings.load({}, {}, config.settings)
    assert settings.log_level == "debug"
    assert settings.cors_origins == ("https://a.example",)
    assert config.policies == {"github": {"delete_issue": {"confirm": "human"}}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("setings: {}\n", "config.yaml:1:1: 'setings' is not a key of config.yaml; did you mean 'settings'?"),
        ("settings: [1]\n", "config.yaml:1:11: 'settings' must be a mapping"),
        ("policies: x\n", "config.yaml:1:11: 'policies' must be a mapping"),
        ("just text\n", "config.yaml:1:1: config.yaml must be a mapping"),
    ],
)
def test_a_mistake_is_reported_at_its_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_gateway(tmp_path / "config.yaml")
    assert caught.value.message.startswith(words)
