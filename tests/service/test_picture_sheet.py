"""The same pictures as one HTML page or one PNG: laid out without overlap, safe, with clear errors."""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from attributary.schemas.errors import ConfigurationError
from attributary.service import picture_sheet
from attributary.service.picture_sheet import (
    Part,
    Picture,
    Words,
    check_file,
    html,
    picture,
    png,
    save,
    sheet,
)

SPACE = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text><script>x</script>\x1b[31m & more"


def square(side: float, fill: str = "#0000ff") -> Picture:
    return picture(
        side, side, "s", [f'<rect x="0" y="0" width="{side}" height="{side}" fill="{fill}"/>']
    )


def pixels(data: bytes) -> list[bytes]:
    """Return the rows of an 8-bit RGBA PNG."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    width, height, depth, colours = struct.unpack_from(">IIBB", chunks[0][1])
    assert (depth, colours) == (8, 6)
    raw = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    rows, before, step = [], bytes(4 * width), 4
    for y in range(height):
        start = y * (4 * width + 1)
        line = bytearray(raw[start + 1 : start + 1 + 4 * width])
        for x in range(4 * width):
            left = line[x - step] if x >= step else 0
            up, corner = before[x], before[x - step] if x >= step else 0
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda v: abs(guess - v))
            line[x] = (line[x] + (0, left, up, (left + up) // 2, nearest)[raw[start]]) % 256
        before = bytes(line)
        rows.append(before)
    return rows


def test_all_parts_are_below_each_other() -> None:
    parts: list[Part] = [Words("note", "word " * 100), square(100), Words("heading", HOSTILE)]
    whole = sheet("Title", [*parts, square(700)])
    root = ElementTree.fromstring(whole.svg)  # noqa: S314 - our own
    inside = root.findall(f"{SPACE}svg")
    boxes = [tuple(float(one.get(name, "nan")) for name in ("x", "y", "height")) for one in inside]
    texts = root.findall(f"{SPACE}text")
    places = [float(text.get("y", "nan")) for text in texts]
    assert places == sorted(places)
    assert len(places) >= 1 + 5 + 1, "the long note is on several lines"
    assert places[-2] < boxes[0][1]
    assert boxes[0][1] + boxes[0][2] < places[-1] < boxes[1][1]
    assert boxes[1][1] + boxes[1][2] < whole.height
    assert boxes[1][0] + 700 < whole.width
    assert not root.findall(f".//{SPACE}script")
    assert "\x1b" not in whole.svg


def test_what_would_be_too_high_is_left_out_and_said() -> None:
    whole = sheet("t", [square(900)] * 20)
    assert whole.height < 13_000
    assert "not drawn" in whole.svg
    assert "not drawn" not in html("t", [square(900)] * 20)


def test_a_png_shows_the_pictures_and_the_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_sheet, "_LEAST_WIDTH", 80)  # it is decoded in Python
    pytest.importorskip("resvg_py", reason="needs the extra png")
    parts: list[Part] = [Words("note", "<b>&\x1b words"), square(30)]
    path = tmp_path / "p.png"
    try:
        check_file(path)
    except ConfigurationError as error:
        pytest.skip(str(error))
    save(path, "T", parts)
    rows = pixels(path.read_bytes())
    whole = sheet("T", parts)
    assert (len(rows[0]) // 4, len(rows)) == (2 * round(whole.width), 2 * round(whole.height))
    colours = [row[k : k + 4] for row in rows for k in range(0, len(row), 4)]
    assert colours[0] == b"\xff\xff\xff\xff"
    assert colours.count(b"\x00\x00\xff\xff") == 60 * 60
    assert colours.count(b"\x22\x22\x22\xff") > 200, "the words' colour"
    save(tmp_path / "p.html", "T", parts)
    assert "<rect" in (tmp_path / "p.html").read_text()


def test_a_huge_picture_is_less_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def drawn(svg_string: str, zoom: float = 1.0, background: str = "") -> bytes:
        asked.append(zoom)
        return svg_string.encode()

    monkeypatch.setitem(sys.modules, "resvg_py", SimpleNamespace(svg_to_bytes=drawn))
    png("t", [square(12_000)])
    assert asked[-1] == pytest.approx(0.52, abs=0.02)
    png("t", [square(100)])
    assert asked[-1] == 2.0


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"\*\.html or \*\.png, got 'p\.pdf'"):
        check_file(Path("p.pdf"))
    blind = SimpleNamespace(svg_to_bytes=lambda svg_string: b"nothing but white")
    monkeypatch.setitem(sys.modules, "resvg_py", blind)
    with pytest.raises(ConfigurationError, match="fonts-dejavu-core"):
        check_file(Path("p.png"))
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(ConfigurationError, match=r"attributary\[png\]"):
        check_file(Path("p.png"))
    check_file(Path("p.html"))
