"""Broker settings from a TOML file."""

import tomllib
from dataclasses import fields
from pathlib import Path

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import DELIVERY_TIMEOUT_S_MAX, PRODUCER_IDLE_S_MAX, BrokerConfig


def read_config(path: Path | None, **overrides: float | None) -> BrokerConfig:
    """The settings in a TOML file (None: the defaults), with the overrides that are not None on top.

    Raises:
        InvalidArgument: not TOML, an unknown setting, or a value that is not a positive number of the right type.
    """
    found = dict[str, object]()
    if path is not None:
        try:
            found = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"config {path} is not TOML: {error}") from None
    known = {field.name: field.type for field in fields(BrokerConfig)}
    where = f"config {path}"
    for name, value in found.items():
        if name not in known:
            raise InvalidArgument(f"{where}: unknown setting {name!r}; the known ones are {', '.join(sorted(known))}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or (known[name] is int and not isinstance(value, int)) or not value > 0:  # type: ignore[operator]
            rule = "a whole number" if known[name] is int else "a number"
            raise InvalidArgument(f"{where}: {name} = {value!r} is not {rule} above 0")
    settings = found | {name: value for name, value in overrides.items() if value is not None}
    config = BrokerConfig(**settings)  # type: ignore[arg-type]
    if not DELIVERY_TIMEOUT_S_MAX < config.producer_idle_s <= PRODUCER_IDLE_S_MAX:
        raise InvalidArgument(
            f"{where}: producer_idle_s = {config.producer_idle_s:g} is not above {DELIVERY_TIMEOUT_S_MAX:g}, the "
            f"longest that a client goes on delivering, and at most {PRODUCER_IDLE_S_MAX:g}"
        )
    return config
