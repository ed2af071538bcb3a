"""The embedded broker behind the same face as the tests' Apache Kafka."""

from __future__ import annotations

from attributary.service.embedded import EmbeddedBroker


class EmbeddedTestBroker(EmbeddedBroker):
    """The embedded broker; a restart loses its records."""

    kind = "embedded"

    def close(self) -> None:
        """Stop the broker."""
        self.stop()
