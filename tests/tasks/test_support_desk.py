"""The example with connectors, as its README says: run by real workers against its own counterparts."""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from celeriac.sessions.calls import CallStatus, DecisionVerb
from tests.tasks.cluster import CHECKOUT, PATIENCE, Cluster, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

OK = CallStatus.SUCCEEDED
THREAD = "1710000000.000100"


@dataclass
class Shop:
    cluster: Cluster
    folder: Path

    def run(self, text: str) -> str:
        self.cluster.ensure_workers(1)
        return self.cluster.say(text, agent="support")

    def refunded(self, order: int) -> int:
        with closing(sqlite3.connect(self.folder / "shop.sqlite")) as shop:
            (found,) = shop.execute("SELECT refunded FROM orders WHERE id = ?", (order,)).fetchone()
        return int(found)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(CHECKOUT / "examples" / "support_desk", folder, dirs_exist_ok=True)
    stripe, slack = str(free_port()), str(free_port())
    written = folder / "connections.yaml"
    text = written.read_text().replace("8091", stripe).replace("8092", slack)
    written.write_text(text.replace("sqlite:///./", f"sqlite:///{folder}/"))
    written.chmod(0o600)
    env = {"CELERIAC_CONNECTOR_CONFIG_FILE": str(written)}
    with Cluster(folder / "cluster", agents=str(folder / "agent.py"), env=env) as cluster:
        command = [sys.executable, str(folder / "counterparts.py")]
        command += ["--stripe-port", stripe, "--slack-port", slack]
        running = cluster.start("counterparts", command, cwd=folder)
        wait_until(lambda: "Slack on" in running.output(), "they serve", timeout_seconds=PATIENCE)
        yield Shop(cluster, folder)
        assert cluster.model_problems() == []


def test_a_read(shop: Shop) -> None:
    session_id = shop.run('/tool sql_query {"sql": "SELECT id, item FROM orders WHERE id = 1001"}')
    (call,) = shop.cluster.idle(session_id).calls
    assert call.result == {"branch": "completed", "rows": [{"id": 1001, "item": "Lamp"}]}


def test_refund_note_and_reply_in_order(shop: Shop) -> None:
    """CN-03: the thread's timestamp is the same text in the record, on the page and at the provider."""
    session_id = shop.run(
        '/tools stripe_create_refund {"payment": "ch_1001", "amount": 900} '
        'sql_note_refund {"parameters": {"order_id": 1001, "amount": 900}} '
        f'slack_post_thread_reply {{"channel": "C024BE91L", "threadTimestamp": "{THREAD}", "text": "9.00"}}'
    )
    reply = shop.cluster.waiting(session_id)
    assert reply.source == "Slack (office)"
    assert isinstance(reply.arguments, dict)
    assert reply.arguments["threadTimestamp"] == THREAD
    refund, note, _ = shop.cluster.snapshot(session_id).calls
    assert (refund.status, note.status) == (OK, OK), "it asks when its turn comes"
    shop.cluster.client.decide(
        session_id, reply.id, DecisionVerb.APPROVE, by="Ann", digest=reply.digest or ""
    )
    *_, reply = shop.cluster.idle(session_id).calls
    assert reply.status is OK
    assert shop.refunded(1001) == 900
    session_id = shop.run(
        f'/tool slack_read_thread {{"channel": "C024BE91L", "threadTimestamp": "{THREAD}"}}'
    )
    (thread,) = shop.cluster.idle(session_id).calls
    assert "9.00" in str(thread.result)
    assert f"'{THREAD}'" in str(thread.result)


def test_a_large_refund_asks(shop: Shop) -> None:
    session_id = shop.run('/tool stripe_create_refund {"payment": "ch_1002", "amount": 34900}')
    call = shop.cluster.waiting(session_id)
    assert call.description is not None
    assert call.description.startswith("Refund a charge or a payment")


def test_what_the_readme_says_is_there(shop: Shop) -> None:
    """Every tool that its messages name is one of the agent's."""
    readme = (CHECKOUT / "examples" / "support_desk" / "README.md").read_text()
    named = set(re.findall(r"\b(?:sql|stripe|slack)_[a-z_]+(?= \{)", readme))
    shop.cluster.ensure_workers(1)
    (agent,) = shop.cluster.client.agents()
    assert len(named) == 4
    assert named <= {one.name for one in agent.tools}
