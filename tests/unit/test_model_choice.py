"""Which model is asked: a name that is not allowed never reaches a client."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from celeriac.sessions.definition import AgentDefinition
from celeriac.sessions.errors import DefinitionError
from celeriac.sessions.model_choice import allowed_models, resolve_model
from celeriac.sessions.model_settings import ModelSettings
from celeriac.sessions.state import StepName
from celeriac.tasks.runtime import require_allowed_models
from tests.unit.world import World

NAMES = st.text(min_size=1, max_size=12)


def test_the_workers_default_comes_first_and_each_name_once() -> None:
    assert allowed_models(["a", "b"], None) == ("a", "b")
    assert allowed_models(["a", "b"], "c") == ("c", "a", "b")
    assert allowed_models(["a", "b"], "b") == ("b", "a")
    assert allowed_models(["a", "a"], "a") == ("a",)


def test_a_name_that_is_not_allowed_gets_the_default() -> None:
    allowed = ("openai/gpt-5-mini", "demo")
    assert resolve_model("demo", allowed) == "demo"
    for wanted in (None, "", "gpt-5-mini", "OPENAI/gpt-5-mini", "demo ", "openai/gpt-6"):
        assert resolve_model(wanted, allowed) == "openai/gpt-5-mini"


@given(st.none() | NAMES, st.lists(NAMES, min_size=1), st.none() | NAMES)
def test_what_is_asked_is_always_allowed(
    wanted: str | None, models: list[str], default: str | None
) -> None:
    allowed = allowed_models(models, default)
    assert set(allowed) == {*models, *([default] if default else [])}
    chosen = resolve_model(wanted, allowed)
    assert chosen in allowed
    assert chosen == wanted or wanted not in allowed


def test_a_model_is_changed_from_its_messages_turn_on() -> None:
    world = World()
    world.send("one")
    world.send("two", model="bigger")
    world.send("three")
    assert world.state.model == "demo"
    world.reply()
    assert (world.state.model, world.steps) == ("bigger", [StepName.RUN_MODEL])
    world.reply()
    assert world.state.model == "bigger", "a message that names none leaves it"


def test_of_messages_that_are_steered_together_the_last_choice_counts() -> None:
    world = World()
    world.send("one")
    world.send("two", model="a")
    world.send("three", model="b")
    world.send("four")
    step = world.start_model()
    world.steer("two", "three", "four")
    world.reply(step=step)
    assert world.state.model == "b"


def test_a_misspelt_model_is_refused_when_the_worker_starts() -> None:
    fitting = AgentDefinition(
        name="a", instructions="", models=["m"], model_settings={"m": ModelSettings()}
    )
    require_allowed_models(fitting, None)
    odd = AgentDefinition(
        name="a", instructions="", models=["m"], model_settings={"n": ModelSettings()}
    )
    with pytest.raises(DefinitionError, match=r"agent a: `model_settings` names .* 'n'.*\(m\)"):
        require_allowed_models(odd, None)
    require_allowed_models(odd, "n")
