"""Dead letters for people, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from aiokafka import ConsumerRecord
from rich.console import Console
from rich.table import Table

from attributary.schemas.dead_letter import HEADER_PREFIX, DeadLetter
from attributary.service.letter_index import Letter, count_reasons
from attributary.service.printable import printable
from attributary.service.result_tables import moment

_SHOWN_ROWS = 10
_SHOWN_TEXT = 4000
_SHOWN_HEX = 512
_HEX_WIDTH = 16


def letters_json(shown: Sequence[Letter], every: Sequence[Letter]) -> str:
    """Return one JSON document: the letters that are shown, and the counts of all."""
    letters = [
        {
            "origin": str(letter.origin),
            "topic": letter.origin.topic,
            "partition": letter.origin.partition,
            "offset": letter.origin.offset,
            "first_seen": letter.first_seen,
            "reasons": letter.reasons,
            "message": letter.message,
            "models": letter.models,
            "rows": sorted(letter.rows) or None,
            "bytes": letter.bytes,
            "state": letter.state,
            "attempt": letter.attempt,
        }
        for letter in shown
    ]
    document = {"letters": letters, "total": len(every), "reasons": count_reasons(every)}
    return msgspec.json.encode(document).decode()


def print_letters(console: Console, shown: Sequence[Letter], every: Sequence[Letter]) -> None:
    """Print a table of letters and how many there are for each reason."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("first seen", "origin", "model", "reason", "rows", "retry"):
        table.add_column(name, no_wrap=name in ("first seen", "origin"))
    table.add_column("message", overflow="ellipsis", no_wrap=True, ratio=1)
    for letter in shown:
        table.add_row(
            moment(letter.first_seen),
            printable(str(letter.origin)),
            printable(", ".join(letter.models), 40),
            printable(", ".join(letter.reasons)),
            str(len(letter.rows)) if letter.rows else "all",
            letter.state
            if letter.claims
            else f"attempt {letter.attempt}"
            if letter.attempt
            else "",
            printable(letter.message, 200),
        )
    console.print(table)
    counts = count_reasons(every)
    console.print(
        f"\n{len(shown)} of {len(every)} rejected messages: "
        + ", ".join(f"{count} {printable(reason)}" for reason, count in counts.items())
    )


def letter_json(letter: Letter, records: Sequence[ConsumerRecord]) -> str:
    """Return everything of one letter as JSON; key, value and headers in base64."""
    record = records[0]
    return msgspec.json.encode(
        {
            "origin": str(letter.origin),
            "state": letter.state,
            "rejections": [_rejection(other) for other in records],
            "key": record.key,
            "value": record.value,
            "text": _text(record.value),
            "headers": [[name, value] for name, value in record.headers],
        }
    ).decode()


def print_letter(console: Console, letter: Letter, records: Sequence[ConsumerRecord]) -> None:
    """Print everything of one letter: its rejections, its headers, and its bytes made safe."""
    console.print(printable(str(letter.origin)), style="bold")
    for record in records:
        found = _rejection(record)
        rows: list[int] = found["rows"] or []
        more = "…" if len(rows) > _SHOWN_ROWS else ""
        which = f"rows {', '.join(map(str, rows[:_SHOWN_ROWS]))}{more}" if rows else "all of it"
        console.print(f"{printable(found['reason'])}: {which}", style="bold red")
        console.print(f"  {printable(found['message'])}")
    console.print(f"first seen {moment(letter.first_seen)}, {_retried(letter)}\n")
    record = records[0]
    for name, value in record.headers:
        if not name.startswith(HEADER_PREFIX):
            console.print(f"{printable(name)}: {printable(_readable(value), 500)}", style="dim")
    if record.key is not None:
        console.print(f"key: {printable(_readable(record.key), 500)}", style="dim")
    _print_value(console, record.value)


def _print_value(console: Console, value: bytes | None) -> None:
    if not value:
        console.print("\nno content" if value is None else "\nempty content")
        return
    text = _text(value)
    console.print(f"\n{len(value):,} bytes, {'as text' if text is not None else 'as hexadecimal'}")
    if text is not None:
        console.print(printable(text, _SHOWN_TEXT), soft_wrap=True)
        return
    for start in range(0, min(len(value), _SHOWN_HEX), _HEX_WIDTH):
        line = value[start : start + _HEX_WIDTH]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        console.print(f"{start:08x}  {line.hex(' '):<{3 * _HEX_WIDTH}} {shown}", soft_wrap=True)
    if len(value) > _SHOWN_HEX:
        console.print("… (all of it: --raw FILE)")


def _retried(letter: Letter) -> str:
    if not letter.claims:
        return "not retried"
    last = max(letter.claims)
    state = "retried in part" if letter.state == "open" else letter.state
    return f"{state}, {last} time{'s' if last > 1 else ''} (last {moment(letter.claims[last].at)})"


def _rejection(record: ConsumerRecord) -> dict[str, Any]:
    found = DeadLetter.from_headers(record.headers)
    return {"reason": found.reason, "message": found.message, "rows": list(found.rows) or None}


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _readable(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "backslashreplace")
