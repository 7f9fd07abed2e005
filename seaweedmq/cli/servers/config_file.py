"""Reader of broker settings from a TOML file."""

import tomllib
from dataclasses import fields
from pathlib import Path

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import DELIVERY_TIMEOUT_S_MAX, PRODUCER_IDLE_S_MAX, BrokerConfig

REMEMBERED = ("producer_idle_s", "producer_retention_s", "segment_retention_s")
"""Settings for how long brokers remember what publishers may still repeat or query."""


def read_config(path: Path | None, **overrides: float | str | None) -> BrokerConfig:
    """Read the settings from a TOML file (None: the defaults), and apply the overrides that are not None.

    Raises:
        InvalidArgument: If the file is not TOML, a setting is unknown, a value has the wrong type or is not above 0, or
            a value is out of range for what clients may do.
    """
    found = dict[str, object]()
    if path is not None:
        try:
            found = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"config {path} is not TOML: {error}") from None
    known = {field.name: field.type for field in fields(BrokerConfig)}
    where = "settings" if path is None else f"config {path}"
    for name, value in found.items():
        if name not in known:
            raise InvalidArgument(f"{where}: unknown setting {name!r}: choose one of {', '.join(sorted(known))}")
        if known[name] in (bool, str):
            if not isinstance(value, known[name]):  # type: ignore[arg-type]
                rule = "true or false" if known[name] is bool else "a string"
                raise InvalidArgument(f"{where}: {name} = {value!r} is not {rule}")
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or (known[name] is int and not isinstance(value, int)) or not value > 0:  # type: ignore[operator]
            rule = "a whole number" if known[name] is int else "a number"
            raise InvalidArgument(f"{where}: {name} = {value!r} is not {rule} above 0")
    settings = found | {name: value for name, value in overrides.items() if value is not None}
    try:
        config = BrokerConfig(**settings)  # type: ignore[arg-type]
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from None
    for name in REMEMBERED:
        value = getattr(config, name)
        if value <= DELIVERY_TIMEOUT_S_MAX:
            raise InvalidArgument(
                f"{where}: {name} = {value:g} is too short: give more than {DELIVERY_TIMEOUT_S_MAX:g}, the seconds "
                "that a client may retry a delivery (delivery_timeout_s)"
            )
    if config.producer_idle_s > PRODUCER_IDLE_S_MAX:
        raise InvalidArgument(
            f"{where}: producer_idle_s = {config.producer_idle_s:g} is too long: give at most {PRODUCER_IDLE_S_MAX:g}"
        )
    return config
