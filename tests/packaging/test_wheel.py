"""The wheel is whole, and gets along with a project that has its own tasks and web modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("connectors", "sessions", "tasks", "web")
SCRIPTS = Path(sysconfig.get_path("scripts"))

# One worker builds once; building and installing take longer than other tests.
pytestmark = [pytest.mark.xdist_group("packaging"), pytest.mark.timeout(240)]


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """What a command prints; it must succeed."""
    # Nothing of this checkout or its settings may reach the installed copy.
    own = {"PYTHONPATH", "PYTHONHOME", "FLASK_APP", "CELERY_BROKER_URL"}
    environ = {
        k: v for k, v in os.environ.items() if k not in own and not k.startswith("CELERIAC_")
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def files_of_the_tree() -> Iterator[str]:
    """Every file that the package must carry, by its name in the wheel."""
    for path in (ROOT / "celeriac").iterdir():
        if path.is_file():
            yield f"celeriac/{path.name}"
    for part in PARTS:
        for path in (ROOT / part).rglob("*"):
            hidden = any(name.startswith(".") for name in path.relative_to(ROOT).parts)
            if path.is_file() and not hidden and "__pycache__" not in path.parts:
                yield f"celeriac/{path.relative_to(ROOT).as_posix()}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with our wheel; what it depends on is borrowed from this one."""
    env = tmp_path_factory.mktemp("env")
    run(sys.executable, "-m", "venv", "--without-pip", env, cwd=env)
    python = env / "bin" / "python"
    pip = ("-m", "pip", "--python", python, "install", "--no-deps", "--no-index")
    run(sys.executable, *pip, wheel, cwd=env)
    # A path in a .pth file is searched after site-packages, and .pth files found there are not
    # read: so the editable install of this environment stays out of sight.
    site = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=env).strip())
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project, with modules named as in the tutorials of Celery and Flask."""
    (tmp_path / "tasks.py").write_text(
        "from celery import Celery\napp = Celery('users', broker_url='memory://users-own')\n"
    )
    for part in ("connectors", "sessions"):
        (tmp_path / f"{part}.py").write_text("")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "__init__.py").write_text(
        "from flask import Flask\napp = Flask('users')\n"
        "app.add_url_rule('/users-own', 'users_own', lambda: 'theirs')\n"
    )
    return tmp_path


def test_the_wheel_holds_exactly_the_files_of_the_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert sorted(names) == sorted(files_of_the_tree())


def test_the_wheel_carries_licence_types_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        scripts = archive.read(next(n for n in names if n.endswith("/entry_points.txt"))).decode()

    assert "celeriac/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "celeriac = celeriac.tasks.cli:main" in scripts


def test_the_sdist_holds_no_links(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        links = [member.name for member in archive if member.issym() or member.islnk()]

    assert links == []


def test_a_users_modules_of_the_same_names_stay_theirs(installed: Path, project: Path) -> None:
    names = [*PARTS, *(f"celeriac.{part}" for part in PARTS)]
    code = (
        "import importlib, json, sys\n"
        "print(json.dumps({n: importlib.import_module(n).__file__ for n in sys.argv[1:]}))"
    )

    found = json.loads(run(installed, "-c", code, *names, cwd=project))

    for part in PARTS:
        assert Path(found[part]).is_relative_to(project)
        assert Path(found[f"celeriac.{part}"]).is_relative_to(installed.parents[1])


def test_celery_finds_our_app_beside_a_users_tasks(installed: Path, project: Path) -> None:
    report = run(
        *(installed, SCRIPTS / "celery", "-A", "celeriac.tasks", "report"),
        cwd=project,
        CELERIAC_REDIS_URL="redis://127.0.0.1:1/7",
    )

    assert "celeriac.tool" in report
    assert "users-own" not in report


def test_flask_finds_our_app_beside_a_users_web(installed: Path, project: Path) -> None:
    routes = run(
        *(installed, SCRIPTS / "flask", "--app", "celeriac.web", "routes"),
        cwd=project,
        CELERIAC_REDIS_URL="redis://127.0.0.1:1/7",
        CELERIAC_SESSION_KEY="a key of this test",
    )

    assert "/healthz" in routes
    assert "users-own" not in routes


def test_the_command_starts_from_a_users_project(installed: Path, project: Path) -> None:
    assert "dev" in run(installed.with_name("celeriac"), "--help", cwd=project)
