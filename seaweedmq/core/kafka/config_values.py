"""One config of Kafka: its name, its type, which texts are values of it, and what is told of it."""

import math
import re
from dataclasses import dataclass
from enum import IntEnum

from seaweedmq.errors import InvalidArgument

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
VALUE_LENGTH_MAX = 1_024
"""Characters. Lists of throttled replicas may be long; they have no effect here."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


class InvalidConfig(InvalidArgument):
    """No config has this name, or it can not have this value: Kafka's INVALID_CONFIG."""


class ConfigMisnamed(InvalidConfig):
    """A request does not say one thing of a config, whatever its name and value: Kafka's INVALID_REQUEST."""


class ConfigType(IntEnum):
    """As Kafka's DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Where a value comes from, as Kafka numbers it."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One entry of the table."""

    name: str
    type: ConfigType
    default: str
    about: str
    """One line for who asks what it does."""
    acts: bool = False
    """Whether it changes anything here. One that does not is kept and shown: tools set it, and read it again."""
    low: float = -math.inf
    high: float = math.inf
    besides: int | None = None
    """A number that is allowed though it is outside of ``low`` to ``high``."""
    form: str = ""
    """A regular expression that the items of a list match, with commas between them. Empty: any."""
    only: tuple[str, ...] = ()
    """Texts that are allowed, of a list: as its items. Empty: any."""
    synonym: str | None = None
    """Name of the broker's config that gives the default in Kafka."""

    @property
    def documentation(self) -> str:
        """What Kafka's tools show of it."""
        return self.about if self.acts else f"{self.about} Kept and shown, without effect in SeaweedMQ."

    def parsed(self, value: str | None) -> str:
        """The text of a value as it is kept.

        Raises:
            InvalidConfig: it is none of this config.
        """
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
        if number is None or not (low <= number <= high or number == self.besides):
            kind = "a number" if self.type is ConfigType.DOUBLE else "a whole number"
            besides = "" if self.besides is None else f", or {self.besides}"
            raise self._refused(text, f"{kind} from {low:,} to {high:,}{besides}")
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
    """The items of a list's value; none of an empty one."""
    return [item.strip() for item in value.split(",") if item.strip()]


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that a config has, or would have."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A config as it is told to Kafka's clients."""

    name: str
    value: str
    source: ConfigSource
    type: ConfigType
    documentation: str
    read_only: bool = False
    synonyms: tuple[Synonym, ...] = ()
    """What gives the value first, then what would without it."""
