"""A Kafka config: its name, type, allowed values and description."""

import math
import re
from dataclasses import dataclass
from enum import IntEnum

from seaweedmq.errors import InvalidArgument

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
VALUE_LENGTH_MAX = 1_024
"""Characters of a value. Lists of throttled replicas may be long; they have no effect here."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


class InvalidConfig(InvalidArgument):
    """An unknown config name, or a value that the config does not allow: Kafka's INVALID_CONFIG."""


class ConfigMisnamed(InvalidConfig):
    """A contradictory request for a config, regardless of its name and value: Kafka's INVALID_REQUEST."""


class ConfigType(IntEnum):
    """A type of Kafka's DescribeConfigs, in Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """The source of a value, in Kafka's numbers."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True)
class Config:
    """One entry of the table."""

    name: str
    type: ConfigType
    default: str
    source: str
    """Name of the broker's config that provides the default in Kafka; ``*`` stands for this config's name."""
    acts: bool = True
    """Whether it has an effect here. Others are kept and shown: tools set them, and read them again."""
    low: float = -math.inf
    high: float = math.inf
    extra: int | None = None
    """Allowed number outside of ``low`` to ``high``."""
    form: str = ""
    """Regular expression that the items of a list match, separated by commas. Empty: any."""
    only: tuple[str, ...] = ()
    """Allowed texts, or items of a list. Empty: any."""
    about: str = ""
    """Description in one line."""

    @property
    def synonym(self) -> str:
        """Name of the broker's config that provides the default in Kafka, or else this name."""
        return self.source.replace("*", self.name)

    @property
    def documentation(self) -> str:
        """The description that Kafka's tools show."""
        return self.about if self.acts else f"{self.about} Kept and shown, without effect in SeaweedMQ."

    def parsed(self, value: str | None) -> str:
        """Return the text of a value as it is kept, or raise InvalidConfig if the config does not allow it."""
        if value is None:
            raise InvalidConfig(f"config {self.name} has no value: give one, or delete the config for its default")
        if len(value) > VALUE_LENGTH_MAX:
            raise self._refused(value[:24] + "...", f"at most {VALUE_LENGTH_MAX:,} characters")
        text = value.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                return self._choice(text.lower(), self.only or ("true", "false"))
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                return str(self._within(int(text) if _WHOLE.fullmatch(text) else None, text))
            case ConfigType.DOUBLE:
                return str(self._within(_number(text), text))
            case ConfigType.LIST:
                items = list(dict.fromkeys(items_of(text)))
                if self.form and not re.fullmatch(self.form, ",".join(items)):
                    raise self._refused(text, "* or partition:broker,partition:broker")
                return ",".join(self._choice(item, self.only) for item in items)
            case _:
                return self._choice(text, self.only)

    def _choice(self, text: str, allowed: tuple[str, ...]) -> str:
        if allowed and text not in allowed:
            raise self._refused(text, "one of " + ", ".join(allowed))
        return text

    def _within(self, number: float | None, text: str) -> float:
        low, high = self._bounds()
        if number is None or not (low <= number <= high or number == self.extra):
            kind = "a number" if self.type is ConfigType.DOUBLE else "a whole number"
            extra = "" if self.extra is None else f", or {self.extra}"
            raise self._refused(text, f"{kind} from {low:,} to {high:,}{extra}")
        return number

    def _bounds(self) -> tuple[float, float]:
        if self.type is ConfigType.DOUBLE:
            return self.low, self.high
        most = INT_MAX if self.type is ConfigType.INT else LONG_MAX
        return (-most - 1 if math.isinf(self.low) else self.low), (most if math.isinf(self.high) else self.high)

    def _refused(self, value: str, rule: str) -> InvalidConfig:
        return InvalidConfig(f"config {self.name} is {value!r}: give {rule}")


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def items_of(value: str) -> list[str]:
    """Return the items of a list's value; none for an empty one."""
    return [item.strip() for item in value.split(",") if item.strip()]


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that a config has, or would have."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A config in a reply to Kafka clients."""

    name: str
    value: str
    source: ConfigSource
    type: ConfigType
    documentation: str
    read_only: bool = False
    synonyms: tuple[Synonym, ...] = ()
    """Sources of the value in order of precedence."""
