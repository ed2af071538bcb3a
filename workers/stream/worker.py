"""One stream worker: ingest, merge and the control reader in one process."""

from __future__ import annotations

import asyncio

from attributary.schemas.connection import Connection
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.topics import Topics
from attributary.workers.stream.control import ControlReader
from attributary.workers.stream.group_service import GroupService
from attributary.workers.stream.host import Hosted, Signs, host
from attributary.workers.stream.ingest_service import IngestService
from attributary.workers.stream.merge_service import MergeService
from attributary.workers.stream.metrics import StreamMetrics
from attributary.workers.stream.options import IngestOptions, MergeOptions

ROLES = frozenset({"ingest", "merge"})


def run_worker(
    connection: Connection,
    topics: Topics,
    ingest: IngestOptions,
    merge: MergeOptions,
    *,
    roles: frozenset[str],
    metrics: StreamMetrics,
    signs: Signs,
) -> None:
    """Run until SIGINT or SIGTERM, then hand over and return.

    Raises ConfigurationError for unknown roles and BrokerError where the broker or a topic is missing.
    """
    if not roles or not roles <= ROLES:
        raise ConfigurationError(f"roles are {sorted(ROLES)}, got {sorted(roles)}")

    def build(loop: asyncio.AbstractEventLoop) -> Hosted:
        control = ControlReader(connection, topics, loop=loop)
        catalogue = control.catalogue
        groups: list[GroupService] = []
        if "ingest" in roles:
            groups.append(IngestService(connection, topics, ingest, catalogue, metrics, loop=loop))
        if "merge" in roles:
            groups.append(MergeService(connection, topics, merge, catalogue, metrics, loop=loop))
        return Hosted([control], groups)

    host("attributary-stream", connection, build, signs)
