"""Reader of broker settings from a TOML file; an unknown setting or a wrong value is an InvalidArgument."""

import tomllib
from pathlib import Path
from typing import Any

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import DELIVERY_TIMEOUT_S_MAX, SETTINGS, BrokerConfig, Setting


def read_config(path: Path | None, **overrides: float | str | None) -> BrokerConfig:
    """Read the settings from a TOML file (None: the defaults), and apply the overrides that are not None."""
    found = dict[str, Any]()
    if path is not None:
        try:
            found = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"config {path} is not TOML: {error}") from None
    where = "settings" if path is None else f"config {path}"
    for name, value in found.items():
        if name not in SETTINGS:
            raise InvalidArgument(f"{where}: unknown setting {name!r}: choose one of {', '.join(sorted(SETTINGS))}")
        if not SETTINGS[name].has_type_of(value):
            raise InvalidArgument(f"{where}: {name} = {value!r} is not {SETTINGS[name].type_rule}")
    settings = found | {name: value for name, value in overrides.items() if value is not None}
    try:
        for name, value in settings.items():
            if SETTINGS[name].outlasts_clients:
                _check_outlasts_clients(SETTINGS[name], value)
        return BrokerConfig(**settings)
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from None


def _check_outlasts_clients(setting: Setting, value_s: float) -> None:
    if value_s <= DELIVERY_TIMEOUT_S_MAX:
        raise InvalidArgument(
            f"{setting.name} = {value_s:g} is too short: give more than {DELIVERY_TIMEOUT_S_MAX:g}, the seconds "
            "that a client may retry a delivery (delivery_timeout_s)"
        )
    if value_s > setting.most:
        raise InvalidArgument(f"{setting.name} = {value_s:g} is too long: give at most {setting.most}")
