"""``attributary dead-letters``: reads, shows and retries what was rejected."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from aiokafka import ConsumerRecord, TopicPartition
from rich.console import Console

from attributary.schemas.dead_letter import DeadLetter, Origin
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.retry_marker import RetryMarker
from attributary.service.letter_blocks import judge
from attributary.service.letter_index import Filter, Letter, LetterIndex, read_index
from attributary.service.letter_retry import Outcome, Retry
from attributary.service.letter_views import (
    letter_json,
    letters_json,
    print_letter,
    print_letters,
)
from attributary.service.printable import printable
from attributary.service.reach import require_broker
from attributary.service.reader import Reader
from attributary.service.settings import Settings

_PIPED_WIDTH = 160
_MOST_REJECTIONS = 50
_MOST_FAILURES = 10
SOME_FAILED = 1


@dataclass(frozen=True)
class RetryOptions:
    """What to retry: ``origins``, or what ``wanted`` holds."""

    origins: tuple[Origin, ...]
    wanted: Filter
    again: bool
    uncertain: bool
    yes: bool
    dry_run: bool


def list_letters(
    settings: Settings, wanted: Filter, *, limit: int, oldest: bool, pending: bool, as_json: bool
) -> None:
    """Print the newest letters, or the oldest."""
    index, _ = _index(settings)
    every = [
        letter
        for letter in index
        if wanted.holds(letter) and not (pending and letter.state != "open")
    ]
    shown = every[:limit] if oldest else every[::-1][:limit]
    if as_json:
        print(letters_json(shown, every))
    elif every:
        print_letters(_console(), shown, every)
    else:
        print(f"no such dead letters in {settings.topics.dead_letters}", file=sys.stderr)
    if index.unreadable:
        print(f"{index.unreadable} records are no dead letters", file=sys.stderr)


def show_letter(settings: Settings, origin: Origin, *, raw: Path | None, as_json: bool) -> None:
    """Print one letter, or write its bytes to ``raw`` ("-": the standard output)."""
    _prepare(settings)
    index = LetterIndex()
    records = asyncio.run(_records(settings, origin, index))
    if not records:
        raise _unknown(settings, origin)
    letter = index.letters[origin]
    if raw is not None:
        value = records[0].value or b""
        if str(raw) == "-":
            sys.stdout.buffer.write(value)
            return
        try:
            raw.write_bytes(value)
        except OSError as error:
            raise ConfigurationError(f"--raw {raw}: {error.strerror}") from None
        print(f"{len(value):,} bytes of {printable(str(origin))} in {raw}")
    elif as_json:
        print(letter_json(letter, records))
    else:
        print_letter(_console(), letter, records)


def retry_letters(settings: Settings, options: RetryOptions) -> int:
    """Publish letters again, after a confirmation; return the exit code: 0, or 1 where some were not."""
    index, ends = _index(settings)
    chosen = _chosen(settings, index, options)
    ready = [letter for letter in chosen if options.again or letter.pending is not None]
    _say_left(chosen, ready)
    held = 0
    if not options.uncertain and ready:
        ready, held = _sure(settings, index, ready)
    if not ready:
        print("nothing to retry")
        return SOME_FAILED if held else 0
    rows = sum(len(letter.rows if options.again else letter.pending or ()) for letter in ready)
    plan = _messages(len(ready), rows, settings.topics.rows)
    if options.dry_run:
        print_letters(_console(), ready[-20:], ready)
        print(f"would publish {plan}")
        return 0
    if not (options.yes or options.origins):
        if not sys.stdin.isatty():
            raise ConfigurationError(f"to publish {plan}, say --yes (--dry-run shows them)")
        click.confirm(f"Publish {plan}?", abort=True)
    retry = Retry(settings.connection, settings.topics)
    outcome = asyncio.run(retry.run(index, ends, ready, again=options.again))
    return max(_report(settings, outcome), SOME_FAILED if held else 0)


def _sure(
    settings: Settings, index: LetterIndex, letters: list[Letter]
) -> tuple[list[Letter], int]:
    """Return the letters that cannot count twice, and how many are left alone because they might."""
    found = asyncio.run(judge(settings.connection, settings.topics, index, letters))
    if found.open:
        print(
            f"{len(found.open)} left alone: they lie in blocks that are still open, which a worker that "
            "restarts counts again by itself; a block closes with the first message after "
            f"{settings.ingest.block_seconds:g} s or {settings.ingest.block_offsets:,} offsets "
            "(--uncertain does not wait for that)",
            file=sys.stderr,
        )
    if found.recounted:
        examples = ", ".join(printable(str(letter.origin)) for letter in found.recounted[:3])
        print(
            f"{len(found.recounted)} left alone: their blocks were counted again since, and fewer rows "
            f"were rejected, so they may be counted already ({examples}); --uncertain publishes them",
            file=sys.stderr,
        )
    return found.sure, len(found.open) + len(found.recounted)


def _prepare(settings: Settings) -> None:
    require_broker(settings.connection)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def _index(settings: Settings) -> tuple[LetterIndex, dict[TopicPartition, int]]:
    _prepare(settings)
    index = LetterIndex()
    ends = asyncio.run(read_index(settings.connection, settings.topics.dead_letters, index))
    return index, ends


async def _records(settings: Settings, origin: Origin, index: LetterIndex) -> list[ConsumerRecord]:
    """Return the letters of one origin that differ in what they reject."""
    found: dict[tuple[str, tuple[int, ...]], ConsumerRecord] = {}
    topic = settings.topics.dead_letters
    reader = Reader(settings.connection, [topic], from_beginning=True, follow=False)
    await reader.start()
    try:
        while (records := await reader.read()) is not None:
            for record in records:
                index.add(record)
                if RetryMarker.is_marker(record.headers) or len(found) >= _MOST_REJECTIONS:
                    continue
                try:
                    letter = DeadLetter.from_headers(record.headers)
                except (KeyError, ValueError):
                    continue
                if letter.origin == origin:
                    found.setdefault((letter.reason, letter.rows), record)
    finally:
        await reader.stop()
    return list(found.values())


def _chosen(settings: Settings, index: LetterIndex, options: RetryOptions) -> list[Letter]:
    if not options.origins:
        return [letter for letter in index if options.wanted.holds(letter)]
    for origin in options.origins:
        if origin not in index.letters:
            raise _unknown(settings, origin)
    return [index.letters[origin] for origin in dict.fromkeys(options.origins)]


def _say_left(chosen: Sequence[Letter], ready: Sequence[Letter]) -> None:
    going = {letter.origin for letter in ready}
    left = [letter for letter in chosen if letter.origin not in going]
    unfinished = [letter for letter in left if letter.state == "unfinished"]
    if done := len(left) - len(unfinished):
        print(f"{done} already retried, left alone (--again)", file=sys.stderr)
    if unfinished:
        examples = ", ".join(printable(str(letter.origin)) for letter in unfinished[:3])
        print(
            f"{len(unfinished)} left alone: a retry of them was interrupted, so they may have been "
            f"published ({examples}); see whether the rows topic has them, then --again",
            file=sys.stderr,
        )


def _report(settings: Settings, outcome: Outcome) -> int:
    if outcome.taken_by_others:
        print(f"{outcome.taken_by_others} are being retried by another", file=sys.stderr)
    for origin, reason in list(outcome.failures.items())[:_MOST_FAILURES]:
        print(f"not published: {printable(str(origin))}: {printable(reason)}", file=sys.stderr)
    if (more := len(outcome.failures) - _MOST_FAILURES) > 0:
        print(f"and {more} more were not published", file=sys.stderr)
    print(f"published {_messages(outcome.published, outcome.rows, settings.topics.rows)}")
    return SOME_FAILED if outcome.failures else 0


def _messages(count: int, rows: int, topic: str) -> str:
    of = f" (of arrays, only {rows:,} rejected rows)" if rows else ""
    return f"{count:,} message{'' if count == 1 else 's'}{of} to {topic}"


def _unknown(settings: Settings, origin: Origin) -> ConfigurationError:
    return ConfigurationError(
        f"no dead letter of {origin} in {settings.topics.dead_letters}: "
        "`attributary dead-letters list` shows which there are"
    )


def _console() -> Console:
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)
