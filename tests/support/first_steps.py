"""Times a new user's way: a clone, the demonstration, and every step of docs/tutorial.md after it.

``python tests/support/first_steps.py`` from a checkout that is committed. What pip has in its cache is not
fetched again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from doc_blocks import ROOT, blocks
from walkthrough import Walkthrough

_DEMO_SECONDS = 30


def main() -> int:
    """Print the seconds of every step; what make says goes to the standard error."""
    seconds: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(scratch) / "attributary"
        for name, command in (
            ("git clone", ["git", "clone", "-q", str(ROOT), str(clone)]),
            ("make setup EXTRAS=demo", ["make", "-C", str(clone), "setup", "EXTRAS=demo"]),
            (
                f"make demo SECONDS={_DEMO_SECONDS}",
                ["make", "-C", str(clone), "demo", f"SECONDS={_DEMO_SECONDS}"],
            ),
        ):
            started = time.monotonic()
            subprocess.run(command, check=True, stdout=sys.stderr, stdin=subprocess.DEVNULL)
            seconds[name] = time.monotonic() - started
        folder = Path(scratch) / "work"
        folder.mkdir()
        walk = Walkthrough(folder)
        try:
            page = blocks(ROOT / "docs" / "tutorial.md")
            walk.follow([b for b in page if b.language in ("console", "python") and not b.reason])
        finally:
            walk.close()
        for step in walk.steps:
            seconds[step.block.heading] += step.seconds
    for name, spent in seconds.items():
        print(f"{spent:7.1f} s  {name}")
    print(f"{sum(seconds.values()):7.1f} s  in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
