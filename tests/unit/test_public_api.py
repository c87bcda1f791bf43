"""What an agent's author imports, and what importing it must not load."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import celeriac

# Modules that are slow to import or bring what a part must not have.
HEAVY = (
    "litellm",
    "mcp",
    "openai",
    "agents",
    "pydantic_ai",
    "langchain",
    "langgraph",
    "google.adk",
)


def test_every_public_name_resolves_and_no_other_does() -> None:
    for name in celeriac.__all__:
        assert getattr(celeriac, name) is not None
    assert sorted(celeriac.__all__) == dir(celeriac)
    assert set(celeriac._HOME_OF) == set(celeriac.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Agent'"):
        celeriac.Agent  # noqa: B018


def test_public_names_are_sorted_and_unique() -> None:
    names = list(celeriac.__all__)
    assert names == sorted(set(names))


def test_every_public_name_says_what_it_is() -> None:
    for name in celeriac.__all__:
        assert (getattr(celeriac, name).__doc__ or "").strip(), f"{name} has no docstring"


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("openai_agents_session", "agents", "openai-agents"),
        ("google_adk_session", "google.adk", "google-adk"),
        ("langgraph_session", "langgraph", "langgraph"),
        ("pydantic_ai_session", "pydantic_ai", "pydantic-ai"),
    ],
)
def test_a_framework_that_is_not_installed_is_named_with_its_extra(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = (celeriac._HOME_OF[name], f"{package}.")
    for module in [one for one in sys.modules if one.startswith(loaded)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(vars(celeriac), name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'celeriac\[{extra}\]'"):
        getattr(celeriac, name)


def test_the_http_client_names_its_extra_where_httpx_is_not_installed() -> None:
    code = "import sys; sys.modules['httpx'] = None; import celeriac; celeriac.HttpSessionClient"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "HttpSessionClient needs httpx" in done.stderr
    assert "pip install 'celeriac[client]'" in done.stderr


def loaded_by(*modules: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after importing these."""
    code = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_web_and_the_command_line_load_no_model_client() -> None:
    loaded = loaded_by("celeriac.web", "celeriac.tasks.cli")
    assert {"celeriac.web", "celeriac.tasks.cli"} <= loaded
    assert loaded.isdisjoint(HEAVY)
    assert not any(name.startswith("celeriac.connectors.litellm") for name in loaded)
    assert "celeriac.web.http_client" not in loaded


def test_an_agent_with_a_source_of_mcp_tools_loads_no_sdk_while_there_is_no_server() -> None:
    loaded = loaded_by("celeriac.connectors.order_support", "celeriac.tasks.worker")
    assert "celeriac.connectors.mcp_source" in loaded
    assert loaded.isdisjoint({"mcp", "mcp_types", "httpx2", "anyio"})


def test_importing_the_package_alone_loads_almost_nothing() -> None:
    loaded = loaded_by("celeriac")
    assert loaded.isdisjoint({*HEAVY, "celery", "kombu", "flask", "redis", "pydantic"})
    assert not any(name.startswith("celeriac.") for name in loaded)
