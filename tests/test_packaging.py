"""The installed package: what it holds, what it loads, and that its import contracts bite."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_FOLDERS = {
    "attributary": "service/api",
    "attributary.service": "service",
    "attributary.workers": "workers",
    "attributary.schemas": "schemas",
}
_HEAVY = (
    "torch",
    "xgboost",
    "faust",
    "mode",
    "sklearn",
    "scipy",
    "pandas",
    "pyarrow",
    "click",
    "rich",
)


def _folder(package: str) -> Path:
    file = importlib.import_module(package).__file__
    assert file is not None
    return Path(file).parent


def _sources(folder: Path) -> set[Path]:
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }


@pytest.mark.parametrize("package", ["attributary.workers", "attributary.schemas"])
def test_the_package_holds_every_source_and_nothing_else(package):
    assert _sources(_folder(package)) == _sources(ROOT / _FOLDERS[package])


def test_the_service_is_installed_whole_and_its_public_face_one_level_up():
    api = {path for path in _sources(ROOT / "service") if path.parts[0] == "api"}
    installed = {
        path for path in _sources(_folder("attributary.service")) if path.parts[0] != "api"
    }
    assert installed == _sources(ROOT / "service") - api
    face = _folder("attributary")
    assert {face / path.relative_to("api") for path in api} <= set(face.rglob("*"))


def test_every_package_says_that_it_is_typed():
    for folder in map(Path, _FOLDERS.values()):
        for init in (ROOT / folder).rglob("__init__.py"):
            assert (init.parent / "py.typed").exists(), init


def test_help_loads_no_command_and_nothing_heavy():
    code = (
        "import sys, json\n"
        "from attributary.service.main import main\n"
        "sys.argv = ['attributary', '--help']\n"
        "assert main() == 0\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = json.loads(said.stdout.splitlines()[-1])
    loaded = {name.partition(".")[0] for name in modules}
    assert loaded.isdisjoint({*_HEAVY, "numpy", "aiokafka", "pydantic"} - {"click"})
    assert "attributary.service.cli" in modules
    assert "attributary.service.settings" not in modules


def test_the_command_and_the_module_say_the_same_version():
    version = importlib.metadata.version("attributary")
    command = Path(sysconfig.get_path("scripts")) / "attributary"
    for way in ([str(command)], [sys.executable, "-m", "attributary.service"]):
        said = subprocess.run([*way, "--version"], capture_output=True, text=True, check=True)
        assert said.stdout == f"attributary {version}\n"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the installed package, in the folder that lint-imports then looks into first."""
    for package in _FOLDERS:
        shutil.copytree(
            _folder(package),
            tmp_path.joinpath(*package.split(".")),
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def _contracts(folder: Path) -> subprocess.CompletedProcess[str]:
    command = Path(sysconfig.get_path("scripts")) / "lint-imports"
    return subprocess.run(
        [str(command), "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_import_contracts_are_kept(copy: Path):
    done = _contracts(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("schemas/topics.py", "import attributary.service.settings"),
        ("schemas/topics.py", "import attributary.workers.stream.options"),
        ("workers/stream/options.py", "import attributary.service.settings"),
        ("workers/maths/wire.py", "import attributary.schemas.errors"),
        ("workers/maths/wire.py", "import aiokafka"),
        ("service/client.py", "import attributary.workers.stream.options"),
        ("service/client.py", "import scipy"),
    ],
)
def test_a_forbidden_import_fails_the_build(copy: Path, module: str, forbidden: str):
    path = copy / "attributary" / module
    path.write_text(path.read_text() + f"\n\n{forbidden}  # planted\n")
    done = _contracts(copy)
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout
