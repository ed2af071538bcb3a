"""Does what the documentation says, block by block, as a reader would: one folder, one pipeline.

Commands of ``attributary`` that end run in this process, those that go on in one of their own. Of what is
written only the broker's address is changed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command import Running, wait_until
from doc_blocks import Block

from attributary.service.main import main
from attributary.service.publisher import Publisher
from attributary.service.supervisor import READY

_ADDRESS = re.compile(r"\b(?:broker|localhost|127\.0\.0\.1):9092\b")
#: Run until they are stopped, and what they say once they can be used.
_SERVERS = {"up": "Ctrl-C stops everything", "stream": READY, "ondemand": READY}
_ENDING = {"tail": {"--no-follow", "-n"}, "top": {"--once"}}


class EnoughError(Exception):
    """An endless example has printed something: it works."""


@dataclass(frozen=True)
class Step:
    """What one block did, and in how many seconds."""

    block: Block
    seconds: float
    output: str


@dataclass
class Walkthrough:
    """A reader with a folder, a broker's address and the servers that are running."""

    folder: Path
    bootstrap: str = ""
    servers: dict[str, Running] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def follow(self, blocks: list[Block], given: dict[str, Any] | None = None) -> None:
        """Do the blocks of one page; its Python examples share their names, and begin with ``given``."""
        names: dict[str, Any] = {**(given or {}), "__name__": "page"}
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            for block in blocks:
                started = time.monotonic()
                try:
                    output = self._do(block, names)
                except Exception as error:
                    raise AssertionError(f"{block.place}: {error}") from error
                self.steps.append(Step(block, time.monotonic() - started, output))
        for value in names.values():
            if isinstance(value, Publisher):
                value.close()

    def do(self, command: str) -> str:
        """Do one command that no page says, in the reader's folder."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            return self._command(shlex.split(command))

    def close(self) -> None:
        """Stop the servers."""
        for server in self.servers.values():
            server.close()

    def _do(self, block: Block, names: dict[str, Any]) -> str:
        if block.language == "python":
            return self._python(block, names)
        return "".join(self._command(words) for words in block.commands())

    def _python(self, block: Block, names: dict[str, Any]) -> str:
        printed = io.StringIO()

        def show(*values: object, **options: Any) -> None:
            print(*values, **{**options, "file": printed})
            if block.endless:
                raise EnoughError

        text = "\n" * block.line + _ADDRESS.sub(self.bootstrap, block.text)
        names["print"] = show
        with contextlib.suppress(EnoughError):
            exec(compile(text, str(block.page), "exec"), names)  # noqa: S102
            assert not block.endless, "it ended"
        return printed.getvalue()

    def _command(self, words: list[str]) -> str:
        words = [_ADDRESS.sub(self.bootstrap, word) for word in words]
        if words[0] != "attributary":
            return self._other(words)
        name = next((word for word in words[1:] if word in {*_SERVERS, *_ENDING}), "")
        if name in _SERVERS:
            return self._serve(name, words[1:])
        if name in _ENDING and not _ENDING[name] & set(words):
            return self._watch(words[1:])
        return self._here(words)

    def _here(self, words: list[str]) -> str:
        """Run a command that ends."""
        said, complained = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", words)
            for name, value in self._settings().items():
                patch.setenv(name, value)
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
                code = main()
        assert code == 0, f"{words}: exit code {code}\n{said.getvalue()}{complained.getvalue()}"
        return said.getvalue()

    def _serve(self, name: str, arguments: list[str]) -> str:
        """Start a server, unless there is one."""
        if name in self.servers:
            return ""
        if name == "up":
            arguments = [*arguments, "--port", "0"]
        server = Running(*arguments, **self._settings())
        self.servers[name] = server
        server.wait_for(_SERVERS[name])
        if "--model-root" in arguments:
            self.servers["ondemand"] = server
        if name == "up":
            self.bootstrap = server.wait_for("broker ").split()[1]
        return server.output

    def _watch(self, arguments: list[str]) -> str:
        """Run a command that goes on until it has shown something, then press Ctrl-C."""
        watching = Running(*arguments, **self._settings())
        try:
            wait_until(lambda: len(watching.lines) > 1, 30.0, lambda: f"{arguments}: silent")
            watching.process.send_signal(signal.SIGINT)
            code = watching.wait(10.0)
            assert code in (0, 130), f"{arguments}: exit code {code}\n{watching.output}"
            return watching.output
        finally:
            watching.close()

    def _other(self, words: list[str]) -> str:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            env={**os.environ, **self._settings(), "PATH": self._path()},
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def _path(self) -> str:
        return f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"

    def _settings(self) -> dict[str, str]:
        if not self.bootstrap:
            return {}
        return {"ATTRIBUTARY_CONNECTION__BOOTSTRAP": self.bootstrap}
