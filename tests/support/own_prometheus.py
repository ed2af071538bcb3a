"""A real Prometheus with the rules that are deployed, made fast enough for a test to wait for them."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from attributary.service.embedded import free_port

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yml"
# Minutes become half a second, so that a test can wait for them; thresholds of load become a test's load.
_FASTER = {
    r"\[(5|10|15|30)m\]": "[5s]", r"\[6h\]": "[60s]", r"offset (5|10|15|30)m": "offset 5s",
    r"offset 1h": "offset 16s", r"/ 300\b": "/ 5", r"time\(\) - 300\b": "time() - 5", r"> 1e6": "> 500",
    r"waiting_seconds_bucket(.*) > 60": r"waiting_seconds_bucket\1 > 4",
}  # fmt: skip


class Prometheus:
    """A Prometheus of the test's own on loopback."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        rules = yaml.safe_load(RULES.read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                for slow, fast in _FASTER.items():
                    rule["expr"] = re.sub(slow, fast, rule["expr"])
                if "for" in rule:
                    rule["for"] = f"{int(rule['for'].removesuffix('m')) * 500}ms"
        (folder / "rules.yml").write_text(yaml.safe_dump(rules))
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {"job_name": "attributary", "static_configs": [{"targets": targets}]}
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        self._log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            [
                "prometheus", f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the instant vector of an expression."""
        arguments = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{arguments}", timeout=5) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result

    def firing(self) -> list[dict[str, str]]:
        """Return the labels of the alerts that fire now."""
        return [one["metric"] for one in self.query('ALERTS{alertstate="firing"}')]

    def wait_for(self, workers: int) -> None:
        """Wait until it has scraped so many workers, and judged that."""
        ended = time.monotonic() + 30.0
        while time.monotonic() < ended:
            with contextlib.suppress(OSError):
                if self.query(f"count(up == 1) == {workers} unless on () ALERTS"):
                    return
            time.sleep(0.2)
        raise AssertionError("Prometheus does not scrape the workers")

    def close(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait(20)
        self._log.close()
