"""Writes into a real PostgreSQL by real workers that are killed: each happens exactly once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from celeriac.sessions.calls import CallStatus
from tests.connectors.sql.server import running_breaker, running_postgres
from tests.tasks.cluster import PATIENCE, Cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("postgres")]

AGENTS = str(Path(__file__).with_name("support_agents.py"))
GATE = 4711


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres() as url:
        yield url


@pytest.fixture
def database(postgres: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS account, celeriac_call_ledger")
        connection.execute("CREATE TABLE account (balance integer)")
        connection.execute("INSERT INTO account VALUES (100)")
        yield connection


def environment(url: str) -> dict[str, str]:
    """A statement that waits, inside its transaction, for as long as somebody holds the gate."""
    statement = {
        "sql": f"WITH gate AS (SELECT pg_advisory_xact_lock_shared({GATE})) "
        "UPDATE account SET balance = balance - 1 FROM gate RETURNING balance",
        "description": "Take one.",
    }
    return {
        "CELERIAC_CONNECTION_BANK_CONNECTOR": "sql",
        "CELERIAC_CONNECTION_BANK_URL": url,
        "CELERIAC_CONNECTION_BANK_STATEMENTS": json.dumps({"take": statement}),
    }


def balance(database: psycopg.Connection) -> int:
    row = database.execute("SELECT balance FROM account").fetchone()
    assert row is not None
    return int(row[0])


def waits_at_the_gate(database: psycopg.Connection) -> bool:
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    row = database.execute(query).fetchone()
    return row is not None and row[0] > 0


def test_a_worker_that_is_killed_within_the_transaction(
    tmp_path: Path, postgres: str, database: psycopg.Connection
) -> None:
    with Cluster(tmp_path, agents=AGENTS, env=environment(postgres)) as cluster:
        worker = cluster.start_worker()
        database.execute("SELECT pg_advisory_lock(%s)", (GATE,))
        session_id = cluster.say('/tool sql_take {"parameters": {}}', agent="clerk")
        wait_until(
            lambda: waits_at_the_gate(database), "it is in the middle", timeout_seconds=PATIENCE
        )
        worker.kill()
        database.execute("SELECT pg_advisory_unlock(%s)", (GATE,))
        cluster.start_worker()
        (call,) = cluster.idle(session_id).calls
        assert (call.status, call.attempts) == (CallStatus.SUCCEEDED, 2)
        assert call.result == {"branch": "completed", "rowsAffected": 1, "rows": [{"balance": 99}]}
    assert balance(database) == 99


def test_commits_that_are_lost_on_their_way_there_and_back(
    tmp_path: Path, postgres: str, database: psycopg.Connection
) -> None:
    with (
        running_breaker(postgres) as (breaker, url),
        Cluster(tmp_path, agents=AGENTS, env=environment(url)) as cluster,
    ):
        cluster.start_workers(2)
        breaker.breaks = ["reply", "request", "reply", "request"]
        calls = " ".join(['sql_take {"parameters": {}}'] * 4)
        session_ids = [cluster.say(f"/tools {calls}", agent="clerk") for _ in range(2)]
        for session_id in session_ids:
            statuses = [call.status for call in cluster.idle(session_id).calls]
            assert statuses == [CallStatus.SUCCEEDED] * 4
        assert breaker.breaks == []
    assert balance(database) == 92
