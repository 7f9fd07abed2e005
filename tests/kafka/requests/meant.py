"""The differences between requests' answers that are meant, each with its reason."""

from tests.kafka.differential.comparison import Rule

MEANT: tuple[Rule, ...] = ()
