"""``attributary dead-letters``: what was rejected, and publishing it again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from attributary.schemas.dead_letter import Origin

_AGO = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_OTHER_NOTATION = re.compile(r"(.+)\[(\d+)\]@(\d+)")


class _Moment(click.ParamType):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from attributary.schemas.errors import RejectedError
        from attributary.schemas.row import event_time_ms

        if ago := _AGO.fullmatch(value):
            return round((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000)
        try:
            return event_time_ms(value, 0)
        except RejectedError:
            self.fail(f"{value!r}: expected a time such as 2026-03-01T12:00:00Z, or 2h (ago)")


class _OriginType(click.ParamType):
    name = "origin"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Origin:
        # As `tail` prints it, too.
        other = _OTHER_NOTATION.fullmatch(value)
        try:
            return Origin.parse("/".join(other.groups()) if other else value)
        except ValueError:
            self.fail(
                f"{value!r}: expected topic/partition/offset, as `dead-letters list` shows it"
            )


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose letters."""
    for option in (
        click.option("--until", type=_Moment(), metavar="TIME", help="First seen before then."),
        click.option(
            "--since", type=_Moment(), metavar="TIME", help="First seen since then, or 2h (ago)."
        ),
        click.option("--topic", metavar="NAME", help="Of this topic only."),
        click.option("--reason", metavar="NAME", help="Rejected for this reason only."),
        click.option("--model", metavar="NAME", help="Of this model only."),
    ):
        command = option(command)
    return command


@click.group()
def dead_letters() -> None:
    """List, show and retry rejected messages.

    Rows that cannot be read or used are kept here with their untouched bytes and the reason, for as
    long as the topic's retention. The dead letters of one message count as one, named by where
    the message lies: topic/partition/offset.
    """


@dead_letters.command("list")
@_filters
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most shown.")
@click.option("--oldest", is_flag=True, help="The oldest instead of the newest.")
@click.option("--pending", is_flag=True, help="Only those that were not retried.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def list_command(
    model: str | None,
    reason: str | None,
    topic: str | None,
    since: int | None,
    until: int | None,
    limit: int,
    oldest: bool,
    pending: bool,
    as_json: bool,
) -> None:
    """List rejected messages, and how many there are for each reason.

    \b
    Examples:
      attributary dead-letters list --model churn --since 2h
      attributary dead-letters list --json | jq .reasons
    """
    from attributary.service.global_options import current_settings
    from attributary.service.letter_index import Filter
    from attributary.service.letters import list_letters

    list_letters(
        current_settings(),
        Filter(model, reason, topic, since, until),
        limit=limit,
        oldest=oldest,
        pending=pending,
        as_json=as_json,
    )


@dead_letters.command("show")
@click.argument("origin", type=_OriginType())
@click.option(
    "--raw",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the message's bytes to FILE (-: the standard output), and show nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, bytes in base64.")
def show_command(origin: Origin, raw: Path | None, as_json: bool) -> None:
    """Show one rejected message: why, its headers, and its bytes.

    \b
    Example:
      attributary dead-letters show attributary.rows/0/4711
    """
    from attributary.service.global_options import current_settings
    from attributary.service.letters import show_letter

    show_letter(current_settings(), origin, raw=raw, as_json=as_json)


@dead_letters.command("retry")
@click.argument("origins", nargs=-1, type=_OriginType(), metavar="[ORIGIN]...")
@_filters
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option("--again", is_flag=True, help="Those too that were retried already.")
@click.option(
    "--uncertain",
    is_flag=True,
    help="Those too that may count twice: their block is still open, or was counted again since.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show which, and publish nothing.")
def retry_command(
    origins: tuple[Origin, ...],
    model: str | None,
    reason: str | None,
    topic: str | None,
    since: int | None,
    until: int | None,
    everything: bool,
    again: bool,
    uncertain: bool,
    yes: bool,
    dry_run: bool,
) -> int:
    """Publish rejected messages again: after the model card, the limits or the code were mended.

    The bytes, the key and the headers are as they came. Of an array only the rejected rows are
    published, so that no row counts twice; rows without a time of their own count now. A message that
    is rejected again is a new dead letter.

    Left alone is what might count twice: messages that were retried, also where that retry was
    interrupted (--again); those whose block is still open, for some minutes after they came, because a
    worker that restarts counts it again; and those that may have been counted so (--uncertain).

    Exit code 0: all were published; 1: some could not be, or have to wait; 2: it could not go on.

    \b
    Examples:
      attributary dead-letters retry attributary.rows/0/4711
      attributary dead-letters retry --reason far_future --model churn
      attributary dead-letters retry --all --yes
    """
    from attributary.schemas.errors import ConfigurationError
    from attributary.service.global_options import current_settings
    from attributary.service.letter_index import Filter
    from attributary.service.letters import RetryOptions, retry_letters

    wanted = Filter(model, reason, topic, since, until)
    ways = (bool(origins), wanted != Filter(), everything)
    if sum(ways) != 1:
        raise ConfigurationError(
            "say what to retry: origins, filters such as --reason, or --all"
            + (", one of these" if any(ways) else "")
        )
    options = RetryOptions(
        origins, wanted, again=again, uncertain=uncertain, yes=yes, dry_run=dry_run
    )
    return retry_letters(current_settings(), options)
