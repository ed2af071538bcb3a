"""A page as headless Chromium shows it: what its console says, and what is drawn how large."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

# The page lies in a frame of this one, which has its origin but not its policy, and measures it.
_HARNESS = """<!doctype html><meta charset="utf-8"><iframe id="f" width="%d" height="800"></iframe>
<pre id="told"></pre><script>
const frame = document.getElementById("f"), told = document.getElementById("told");
frame.onload = () => {
  const page = frame.contentDocument, counts = {};
  page.querySelectorAll("details").forEach(found => found.open = true);
  page.querySelectorAll("*").forEach(e => counts[e.localName] = (counts[e.localName] || 0) + 1);
  const sizes = [...page.querySelectorAll("svg")].map(e => e.getBoundingClientRect());
  const inside = e => e.getBoundingClientRect().width > 0 && e.getBoundingClientRect().right <= frame.width;
  const letters = [...page.querySelectorAll("svg text, .row span")].map(e =>
    parseFloat(frame.contentWindow.getComputedStyle(e).fontSize) * (e.getScreenCTM ? e.getScreenCTM().a : 1));
  const cut = [...page.querySelectorAll(".row span, .counts td")].filter(e =>
    e.textContent && (!inside(e) || (e.clientWidth && e.scrollWidth > e.clientWidth)));
  const colour = e => frame.contentWindow.getComputedStyle(e).backgroundColor;
  told.textContent = JSON.stringify({
    counts, figures: sizes.map(r => [r.width, r.height]), text: page.body.textContent,
    smallest: Math.min(...letters), cut: cut.map(e => e.textContent),
    width: page.documentElement.scrollWidth, ground: colour(page.body), title: page.title,
  });
};
frame.srcdoc = %s;
</script>"""


@dataclass(frozen=True)
class Shown:
    """``console``: its lines; ``counts``: elements by name; ``figures``: (width, height) of each SVG.

    ``smallest``: pixels of the smallest letters of a figure; ``cut``: names and numbers that do not fit.
    """

    console: list[str]
    counts: dict[str, int]
    figures: list[tuple[float, float]]
    smallest: float
    cut: list[str]
    text: str
    title: str
    width: float
    ground: str


def show(document: str, folder: Path, *, dark: bool = False, width: int = 1000) -> Shown:
    """Return what Chromium makes of a page."""
    harness = folder / "harness.html"
    # Inside a script only "</" and "<!--" would end it.
    harness.write_text(
        _HARNESS % (width, json.dumps(document).replace("<", "\\u003c")), encoding="utf-8"
    )
    done = _chromium(
        folder,
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        "--enable-logging=stderr",
        "--virtual-time-budget=4000",
        "--dump-dom",
        harness.as_uri(),
    )
    found = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-2000:] + done.stderr
    told: dict[str, Any] = json.loads(html.unescape(found[1]))
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Shown(console=console, **told)


def printed(document: str, folder: Path) -> int:
    """Return how many sheets a page fills."""
    page, sheets = folder / "page.html", folder / "page.pdf"
    page.write_text(document, encoding="utf-8")
    _chromium(folder, f"--print-to-pdf={sheets}", page.as_uri())
    return len(re.findall(rb"/Type\s*/Page\b", sheets.read_bytes()))


def _chromium(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    return subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            f"--user-data-dir={folder / 'profile'}", *arguments,
        ],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=True,
    )  # fmt: skip
