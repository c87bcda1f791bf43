"""Agents are found by module, by name in a module, by file, or by entry point."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from celeriac.sessions import registry
from celeriac.sessions.errors import ConfigurationError, DefinitionError
from celeriac.sessions.registry import load_agents

AGENT = (
    "from celeriac import AgentDefinition\n{0} = AgentDefinition(name={1!r}, instructions='x')\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory; modules loaded from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: Path, *names: str) -> None:
    path.parent.mkdir(exist_ok=True)
    lines = [AGENT.format(f"agent_{index}", name) for index, name in enumerate(names)]
    path.write_text("".join(lines), encoding="utf-8")


def test_every_agent_of_a_module_in_the_current_directory_is_found(folder: Path) -> None:
    write(folder / "unit_agents_a.py", "support", "sales")
    assert list(load_agents("unit_agents_a")) == ["support", "sales"]


def test_one_agent_of_a_module_can_be_named(folder: Path) -> None:
    write(folder / "unit_agents_b.py", "support", "sales")
    assert list(load_agents("unit_agents_b:agent_1")) == ["sales"]


@pytest.mark.parametrize("place", ["unit_agents.py", "./unit_agents.py", "sub/agent.py", "./sub"])
def test_a_file_or_a_folder_with_agent_py_is_loaded(folder: Path, place: str) -> None:
    write(folder / "unit_agents.py", "support")
    write(folder / "sub" / "agent.py", "support")
    assert list(load_agents(place)) == ["support"]


def test_several_places_are_joined_in_their_order(folder: Path) -> None:
    write(folder / "one.py", "zebra")
    write(folder / "two.py", "ant")
    assert list(load_agents(" one.py , ./two.py,")) == ["zebra", "ant"]


def test_the_same_module_twice_is_no_clash(folder: Path) -> None:
    write(folder / "unit_agents_c.py", "support")
    assert list(load_agents("unit_agents_c,unit_agents_c:agent_0")) == ["support"]


def test_an_agent_under_two_names_is_one_agent(folder: Path) -> None:
    write(folder / "one.py", "support")
    with (folder / "one.py").open("a") as module:
        module.write("default = agent_0\n")
    assert list(load_agents("one.py")) == ["support"]


def test_two_agents_of_one_name_are_refused(folder: Path) -> None:
    write(folder / "one.py", "support")
    write(folder / "two.py", "support")
    with pytest.raises(ConfigurationError, match=r"two\.py: another agent is named 'support'"):
        load_agents("one.py,two.py")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("no_such_module_here", "'no_such_module_here' cannot be imported"),
        ("missing.py", "there is no file 'missing.py'"),
        ("some/where", "there is no file 'some/where'"),
        ("one_agent_x:nothing", "has no 'nothing'"),
        ("one_agent_x:number", "'one_agent_x:number' holds no AgentDefinition"),
        ("empty.py", "'empty.py' holds no AgentDefinition"),
        ("", "No agent is defined: set CELERIAC_AGENTS"),
        (" , ", "No agent is defined"),
        ("broken.py", "CELERIAC_AGENTS: 'broken.py' cannot be imported: .*this is wrong"),
        ("syntax.py", "CELERIAC_AGENTS: 'syntax.py' cannot be imported"),
        ("broken", "CELERIAC_AGENTS: 'broken' cannot be imported: .*this is wrong"),
        ("refused.py", "is no agent name"),
        (":x", "CELERIAC_AGENTS: ':x' cannot be imported"),
    ],
)
def test_what_cannot_be_loaded_names_the_setting_or_the_place(
    folder: Path, place: str, words: str
) -> None:
    write(folder / "one_agent_x.py", "support")
    with (folder / "one_agent_x.py").open("a") as module:
        module.write("number = 1\n")
    (folder / "empty.py").write_text("")
    (folder / "broken.py").write_text("raise RuntimeError('this is wrong')")
    (folder / "syntax.py").write_text("def (")
    write(folder / "refused.py", "no agent name")
    with pytest.raises(ConfigurationError, match=words):
        load_agents(place)


def test_a_wrong_definition_is_an_error_of_definition_or_configuration() -> None:
    assert issubclass(DefinitionError, ConfigurationError)


def test_without_a_place_the_installed_entry_points_are_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "unit_agents_d.py", "support")
    monkeypatch.syspath_prepend(str(folder))

    def entry_points(*, group: str) -> list[EntryPoint]:
        assert group == "celeriac.agents"
        return [EntryPoint("any", "unit_agents_d", group)]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    assert list(load_agents(None)) == ["support"]
