"""How every client of this project reaches the broker."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Connection(BaseModel):
    """The broker's address, as comma-separated host:port pairs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap: Annotated[str, Field(min_length=1)] = "localhost:9092"

    def client_arguments(self) -> dict[str, Any]:
        """Return the arguments that every aiokafka client takes."""
        return {"bootstrap_servers": self.bootstrap}
