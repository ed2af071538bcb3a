"""The command line in processes of its own: help that teaches, errors of one line, exit codes."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import ATTRIBUTARY, environment, error_line, run

from attributary.service.cli import COMMANDS
from attributary.service.embedded import free_port

WITHOUT = """
import sys

missing = sys.argv.pop(1)

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from attributary.service.main import main
sys.exit(main())
"""


@pytest.fixture
def nowhere() -> str:
    """An address where nothing listens."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A small CSV file."""
    path = tmp_path / "rows.csv"
    path.write_text("age,plan,score\n41,pro,0.5\n30,free,0.25\n")
    return path


def test_help_says_what_it_does_with_examples_and_every_command_by_section() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "which features move a model's outputs" in done.stdout
    assert done.stdout.count("\n    attributary ") == 3
    for section in ("Start here:", "Run it:", "Rows in, results out:"):
        assert section in done.stdout
    for name, entry in COMMANDS.items():
        assert f"  {name}" in done.stdout
        assert entry.help.split()[0] in done.stdout
    assert run().stdout == done.stdout, "no arguments: help"
    assert run("-h").stdout == done.stdout


def test_help_is_quick() -> None:
    best = 10.0
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Processor time: what else the machine does is not the command's.
        best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert best < 0.3


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from attributary.service.cli import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "print(' '.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "click" in loaded
    assert not loaded & {
        "aiokafka",
        "faust",
        "numpy",
        "pandas",
        "pyarrow",
        "pydantic",
        "rich",
        "torch",
    }


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name: str) -> None:
    done = run(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: attributary {name} ")
    assert len(done.stdout.splitlines()) > 5


def test_the_version() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.split()[0] == "attributary"
    assert done.stdout.split()[1][0].isdigit()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pubish"], "no command 'pubish': did you mean 'publish'?"),
        (["frobnicate"], "no command 'frobnicate': there are demo,"),
        (["--bogus"], "No such option: --bogus"),
        (["tail", "--kind", "rainbows"], "'rainbows' is not one of"),
        (["tail", "-n", "0"], "0 is not in the range x>=1"),
        (["tail", "-n", "many"], "'many' is not a valid integer"),
        (["publish"], "publish FILE, or publish --query SQL"),
        (["publish", "x.csv"], "Missing option '--model'"),
        (["register"], "Missing argument 'CARD'"),
        (["--bootstrap", "nowhere", "tail"], "expected host:port"),
        (["--bootstrap", "a:b", "tail"], "expected host:port"),
        (["--prefix", "no spaces", "tail"], "topic name"),
        (["--config", "/no/such/file.toml", "tail"], "/no/such/file.toml"),
        (["tail", "--kind", "rows", "--window", "tumbling"], "do not apply to --kind rows"),
    ],
    ids=" ".join,
)
def test_what_cannot_work_is_one_line(arguments: list[str], said: str) -> None:
    assert said in error_line(run(*arguments))


def test_settings_that_do_not_exist_are_one_line() -> None:
    line = error_line(run("tail", ATTRIBUTARY_CONECTION__BOOTSTRAP="x:1"))
    assert "ATTRIBUTARY_CONNECTION__BOOTSTRAP" in line


def test_options_win_over_the_environment_and_the_environment_over_the_file(
    tmp_path: Path, nowhere: str
) -> None:
    config = tmp_path / "attributary.toml"
    config.write_text('[connection]\nbootstrap = "127.0.0.1:1"\n')
    assert "127.0.0.1:1 " in error_line(run("--config", str(config), "tail"))
    variables = {"ATTRIBUTARY_CONNECTION__BOOTSTRAP": "127.0.0.1:2"}
    assert "127.0.0.1:2 " in error_line(run("--config", str(config), "tail", **variables))
    arguments = ["--config", str(config), "--bootstrap", nowhere, "tail"]
    assert f"{nowhere} " in error_line(run(*arguments, **variables))


def test_no_broker_is_one_line_that_names_the_fix(
    nowhere: str, table: Path, tmp_path: Path
) -> None:
    card = tmp_path / "card.json"
    card.write_text('{"model": "m"}')
    for arguments in (
        ["tail"],
        ["tail", "--kind", "dead-letters", "--json"],
        ["publish", str(table), "--model", "m", "--outputs", "score"],
        ["register", str(card)],
    ):
        line = error_line(run("--bootstrap", nowhere, *arguments))
        assert f"no broker at {nowhere} (connection refused)" in line
        assert "attributary up" in line


def test_what_listens_but_is_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        line = error_line(run("--bootstrap", address, "tail"))
        assert time.monotonic() - began < 15
        assert "no answer" in line


@pytest.mark.parametrize(
    ("content", "name", "options", "said"),
    [
        (None, "gone.csv", [], "there is no such file"),
        ("", "empty.csv", [], "is empty"),
        ("", "empty.parquet", [], "is empty"),
        ("a,score\n1,2\n", "rows.txt", [], "give --format csv, jsonl or parquet"),
        ("a,score\n1,2\n", "rows.csv", ["--outputs", "scor"], "did you mean 'score'?"),
        ("a,score\n1,2\n", "rows.csv", ["--features", "A"], "--features: no column 'A'"),
        ("a,score\n1,2\n", "rows.csv", ["--features", "score"], "in --features and in --outputs"),
        ("a,score\n1,2\n", "rows.csv", ["--id-column", "key"], "--id-column: no column 'key'"),
        ("a,score\n1,2\n", "rows.csv", ["--categorical", "score"], "not among the features"),
        ("score\n2\n", "rows.csv", [], "no column is left for the features"),
        ("a,score\n1,high\n", "rows.csv", [], "'score' must be numeric, it holds string"),
        ("a,a,score\n1,2,3\n", "rows.csv", [], "names a column twice: a"),
        ("PAR1 garbage", "rows.parquet", [], "cannot be read as Parquet"),
        ("not json\n", "rows.jsonl", [], "holds no JSON object"),
        ('{"a":1}\n', "rows.jsonl", [], "no column 'score'"),
        ('{"a":1}\n', "rows.jsonl", ["--as", "arrow"], "travel as json"),
        ("garbage", "rows.csv.gz", [], "rows.csv.gz"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_files_that_cannot_be_published_are_one_line(
    tmp_path: Path, nowhere: str, content: str | None, name: str, options: list[str], said: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    outputs = [] if "--outputs" in options else ["--outputs", "score"]
    arguments = ["publish", str(path), "--model", "m", *outputs, *options]
    assert said in error_line(run("--bootstrap", nowhere, *arguments))


def test_a_table_without_outputs_names_its_columns(table: Path, nowhere: str) -> None:
    line = error_line(run("--bootstrap", nowhere, "publish", str(table), "--model", "m"))
    assert "--outputs" in line
    assert "'age', 'plan', 'score'" in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"model": "m", "outputs": ["y", "y"]}', "outputs named twice: y"),
        ('{"model": "m"', "EOF while parsing"),
        ('{"model": "two words"}', "model"),
        ('{"model": "m", "schema": "attributary.row/1"}', "expected the schema"),
    ],
)
def test_a_card_that_cannot_work_is_one_line(
    tmp_path: Path, nowhere: str, content: str, said: str
) -> None:
    card = tmp_path / "card.json"
    card.write_text(content)
    line = error_line(run("--bootstrap", nowhere, "register", str(card)))
    assert said in line
    assert str(card) in line
    assert "no such file" in error_line(run("register", str(tmp_path / "gone.json"))).lower()


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [
        ("click", ["--help"], "stream"),
        ("pydantic_settings", ["tail"], "stream"),
        ("pyarrow", ["publish", "x.csv", "--model", "m"], "stream"),
        ("rich", ["tail"], "stream"),
    ],
)
def test_a_missing_extra_is_named(package: str, command: list[str], extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *command],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )
    assert f"{package} is not installed: pip install 'attributary[{extra}]'" in error_line(done)


def test_nothing_in_an_error_drives_the_terminal(nowhere: str) -> None:
    line = error_line(run("--bootstrap", nowhere, "publish", "\x1b[31mred\n.csv", "--model", "m"))
    assert "\x1b" not in line
    assert r"\x1b[31mred" in line


@pytest.mark.parametrize("arguments", [["--help"], ["tail", "--help"], ["--version"]])
def test_a_reader_that_leaves_early_causes_no_noise(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [ATTRIBUTARY, *arguments],
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=30,
            env=environment(),
        )
    finally:
        os.close(writing)
    assert done.stderr == b""
