"""The documentation site: it builds without a warning, has every page, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attributary.service.cli import COMMANDS

ROOT = Path(__file__).parents[1]
_LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?([^\"' >]+)")
_LINKED = re.compile(r"<link\b[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect|icon)[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q",
         "-f", str(ROOT / "docs" / "site" / "mkdocs.yml"), "-d", str(folder)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_is_whole(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    for page in pages:
        name = "index" if page.stem == "README" else page.stem
        assert (site / page.parent / f"{name}.html").exists(), page
    assert "Which features move your model" in (site / "index.html").read_text(encoding="utf-8")
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"Usage: attributary {command} " in commands
    client = (site / "reference" / "client.html").read_text(encoding="utf-8")
    for name in ("Publisher", "PredictionMiddleware", "subscribe", "Explainer"):
        assert re.search(rf'id="attributary\.service\.\w+\.{name}"', client)
    assert (site / "contracts" / "asyncapi.json").exists()
    assert not list(site.rglob("*.py"))


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = [*_LOADED.findall(text), *_LINKED.findall(text)]
        assert loaded, page
        for one in loaded:
            assert "//" not in one, (page, one)
