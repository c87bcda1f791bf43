"""`celeriac dev` with a local model server: two variables are all that a user sets."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from tests.models.aimock import Aimock
from tests.node_tools import needs_node_tools
from tests.web.dev_process import Conversation, running_dev

pytestmark = [
    needs_node_tools,
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    pytest.mark.timeout(240),
]


def test_two_variables_are_all(
    running_aimock: Aimock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        if name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL")) or "LITELLM" in name:
            monkeypatch.delenv(name)
    running_aimock.reset()
    read = {"name": "look_up_order", "arguments": '{"order_id":"1001"}', "id": "call_1"}
    running_aimock.script(
        {"match": {"hasToolResult": False}, "response": {"toolCalls": [read]}},
        {"match": {"toolResultContains": "1001"}, "response": {"content": "It is on its way."}},
    )
    variables = {
        "CELERIAC_MODEL": "openai/my-model",
        "OPENAI_API_BASE": f"{running_aimock.url}/v1",
    }
    with (
        running_dev(tmp_path, **variables) as dev,
        httpx.Client(base_url=dev.base, timeout=60) as web,
    ):
        talk = Conversation(web)
        talk.send("Where is order 1001?")
        assert talk.wait_for("turn.ended")["state"] == "answered"
        assert talk.last_text() == "It is on its way."
        assert talk.snapshot()["model"] == "openai/my-model"
    assert running_aimock.statuses() == [200, 200]
