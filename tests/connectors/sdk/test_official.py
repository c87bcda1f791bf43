"""The connectors that come with Celeriac: their manifests, the published schema, and the skeleton for new ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from celeriac.connectors.sdk.manifest import Manifest, manifest_schema
from celeriac.connectors.sdk.scaffold import write_scaffold
from celeriac.sessions.errors import DefinitionError
from celeriac.tasks.cli import main

ROOT = Path(__file__).parents[3]
MANIFESTS = sorted(ROOT.glob("connectors/*/connector.json"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.parent.name)
def test_a_manifest_is_as_the_published_schema_says(path: Path) -> None:
    document = json.loads(path.read_text())
    jsonschema.Draft202012Validator(json.loads(manifest_schema())).validate(document)
    manifest = Manifest.of_file(path)
    assert (path.parent / "README.md").is_file()
    readme = (path.parent / "README.md").read_text()
    for operation in manifest.operations:
        if operation.agent.exposed:
            assert f"`{operation.id}`" in readme, "the README tells how each operation may end"


def test_the_published_schema_is_up_to_date() -> None:
    published = ROOT / "docs" / "reference" / "connector-manifest.schema.json"
    assert published.read_text() == manifest_schema()


def test_a_new_connector_passes_its_own_tests(tmp_path: Path) -> None:
    folder = write_scaffold("acme_shop", tmp_path / "new")
    # What an editable install leaves, without one: the tests run in an environment that must not change.
    metadata = tmp_path / "site" / "celeriac_acme_shop-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Name: celeriac-acme-shop\nVersion: 0.1.0\n")
    entry = "[celeriac.connectors]\nacme_shop = celeriac_acme_shop:AcmeShopConnector\n"
    (metadata / "entry_points.txt").write_text(entry)
    path = os.pathsep.join([str(folder), str(metadata.parent), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout


@pytest.mark.parametrize("name", ["", "Acme", "a-b", "a" * 31, "../x"])
def test_a_connectors_name_is_checked(tmp_path: Path, name: str) -> None:
    with pytest.raises(DefinitionError, match="is no name of a connector"):
        write_scaffold(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="exists already"):
        write_scaffold("acme", tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- the command line


def run(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["connectors", *arguments], env=env)
    return result.exit_code, result.output


def test_listing() -> None:
    _, text = run("list")
    assert "stripe.createRefund  idempotent_write, asks first" in text
    assert "findRefundOfCall" not in text, "agents cannot have it"
    assert "Connections: none" in text
    _, text = run("list", "--json")
    listed = json.loads(text)
    assert listed["connectors"]["slack"]["operations"]["readThread"]["effect"] == "read"


def test_linting(tmp_path: Path) -> None:
    good = str(MANIFESTS[0])
    assert run("lint", good)[0] == 0
    bad = tmp_path / "connector.json"
    bad.write_text(Path(good).read_text().replace('"defect"', '"fault"'))
    code, text = run("lint", good, str(bad))
    assert code == 1
    assert "for faults of the connector itself" in text


def test_checking(tmp_path: Path) -> None:
    assert run("check")[0] == 1
    database = tmp_path / "shop.sqlite"
    database.touch()
    env = {
        "CELERIAC_CONNECTION_SHOP_CONNECTOR": "sql",
        "CELERIAC_CONNECTION_SHOP_URL": f"sqlite:///{database}",
    }
    assert run("check", env=env) == (0, "✓ shop: the database answers\n")
    code, text = run("check", "shop", "other", env=env)
    assert code == 1
    assert "✗ other: there is no connection of this name; there are: shop" in text
    database.unlink()
    code, text = run("check", env=env)
    assert (code, "there is no database" in text) == (1, True)
