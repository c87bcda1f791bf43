"""The SQL connector on PostgreSQL and SQLite: reading, writing exactly once, and what is refused."""

from __future__ import annotations

import concurrent.futures
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import psycopg
import pytest
from pydantic import JsonValue

from celeriac.sessions.errors import (
    ConfigurationError,
    ToolFailed,
    ToolNotRun,
    ToolOutcomeUnknown,
)
from tests.connectors.sdk.calls import call, definition_of, reconcile
from tests.connectors.sql.server import running_breaker, running_postgres

CANCEL = {"statement": "takeMoney"}


@dataclass
class Bank:
    """A database with accounts, and a connection to it."""

    url: str
    dialect: str
    ask: Callable[[str], list[tuple[object, ...]]]
    """Beside the connector."""

    def environment(self, through: str | None = None, /, **values: JsonValue) -> dict[str, str]:
        mark = (lambda name: f"%({name})s") if self.dialect == "postgresql" else ":{}".format
        amount: dict[str, JsonValue] = {
            "amount": {"type": "integer", "minimum": 1, "description": "How much."}
        }
        name: dict[str, JsonValue] = {"name": {"type": "string", "description": "Whose."}}
        statements: Mapping[str, JsonValue] = {
            "takeMoney": {
                "sql": f"UPDATE account SET balance = balance - {mark('amount')} WHERE name = {mark('name')} "
                "RETURNING balance",
                "description": "Take money from an account.",
                "parameters": {**name, **amount},
                "maxRows": 1,
            },
            "takeFromAll": {
                "sql": f"UPDATE account SET balance = balance - {mark('amount')}",
                "description": "Take money from everybody.",
                "parameters": {**amount},
                "maxRows": 1,
            },
        }
        prefix = "CELERIAC_CONNECTION_MAIN_"
        return {
            f"{prefix}CONNECTOR": "sql",
            f"{prefix}URL": through or self.url,
            f"{prefix}STATEMENTS": json.dumps(statements),
            **{f"{prefix}{key.upper()}": json.dumps(value) for key, value in values.items()},
        }

    def query(self, sql: str, **values: JsonValue) -> dict[str, JsonValue]:
        return cast(
            "dict[str, JsonValue]", call(self.environment(**values), "sql.query", {"sql": sql})
        )

    def take(
        self,
        amount: int,
        call_id: str,
        *,
        url: str | None = None,
        attempt: int = 1,
        name: str = "Ann",
    ) -> dict[str, JsonValue]:
        result = call(
            self.environment(url),
            "sql.execute",
            {"parameters": {"name": name, "amount": amount}},
            fixed=CANCEL,
            call_id=call_id,
            attempt=attempt,
        )
        return cast("dict[str, JsonValue]", result)

    @property
    def balance(self) -> object:
        return self.ask("SELECT balance FROM account WHERE name = 'Ann'")[0][0]

    @property
    def ledger(self) -> int:
        return len(self.ask("SELECT call_id FROM celeriac_call_ledger"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with running_postgres() as url:
        yield url


@pytest.fixture(params=["postgresql", "sqlite"])
def bank(request: pytest.FixtureRequest, tmp_path: Path) -> Bank:
    if request.param == "sqlite":
        return _sqlite_bank(tmp_path)
    return _postgres_bank(request.getfixturevalue("postgres"))


_TABLE = (
    "CREATE TABLE account (name text PRIMARY KEY, balance integer NOT NULL CHECK (balance >= 0))"
)
_ROWS = "INSERT INTO account VALUES ('Ann', 100), ('Ben', 100)"


def _sqlite_bank(folder: Path) -> Bank:
    path = folder / "bank.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(_TABLE)
        connection.execute(_ROWS)
        connection.commit()

    def ask(sql: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(sql).fetchall()

    return Bank(f"sqlite:///{path}", "sqlite", ask)


def _postgres_bank(url: str) -> Bank:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS account, celeriac_call_ledger")
        connection.execute(cast("psycopg.abc.QueryNoTemplate", _TABLE))
        connection.execute(_ROWS)

    def ask(sql: str) -> list[tuple[object, ...]]:
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute(cast("psycopg.abc.QueryNoTemplate", sql)).fetchall()

    return Bank(url, "postgresql", ask)


# --- writing


def test_a_statement_runs_and_says_what_it_changed(bank: Bank) -> None:
    result = bank.take(10, "call_1")
    assert result == {"branch": "completed", "rowsAffected": 1, "rows": [{"balance": 90}]}
    assert (bank.balance, bank.ledger) == (90, 1)


def test_the_same_call_again_replays_what_was_answered_first(bank: Bank) -> None:
    first = bank.take(10, "call_1")
    assert bank.take(10, "call_1", attempt=2) == first
    assert (bank.balance, bank.ledger) == (90, 1)


def test_eight_at_once_are_one(bank: Bank) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: _until_it_runs(bank), range(8)))
    assert all(result == results[0] for result in results)
    assert (bank.balance, bank.ledger) == (90, 1)


def _until_it_runs(bank: Bank) -> dict[str, JsonValue]:
    """A database that is busy, or whose ledger is just being made, is a reason to try again."""
    for attempt in range(1, 20):
        try:
            return bank.take(10, "call_1", attempt=attempt)
        except (ToolNotRun, ToolOutcomeUnknown):
            continue
    raise AssertionError("it never ran")


def test_a_call_with_other_parameters_is_a_defect(bank: Bank) -> None:
    bank.take(10, "call_1")
    with pytest.raises(ToolFailed, match="defect: this call ran with another statement"):
        bank.take(20, "call_1")
    assert bank.balance == 90


def test_what_the_database_refuses_changes_nothing_and_may_be_tried_again(bank: Bank) -> None:
    with pytest.raises(ToolFailed, match="rejected: "):
        bank.take(1000, "call_1")
    assert bank.balance == 100
    # No row is left of it: with money on the account the very same call runs.
    bank.take(100, "call_1", name="Ben", attempt=2)


def test_too_many_rows_undo_everything(bank: Bank) -> None:
    with pytest.raises(ToolFailed, match="limitExceeded: it would have changed 2 rows"):
        call(
            bank.environment(),
            "sql.execute",
            {"parameters": {"amount": 1}},
            fixed={"statement": "takeFromAll"},
        )
    assert bank.balance == 100


def test_a_call_that_ran_is_found(bank: Bank) -> None:
    ran = bank.take(10, "call_1")
    found = reconcile(bank.environment(), "sql.execute", {}, fixed=CANCEL, call_id="call_1")
    assert found.happened is True
    assert found.result == {**ran, "branch": "found"}


def test_a_call_that_did_not_run_is_found_out_and_can_never_run(bank: Bank) -> None:
    for _ in range(2):
        found = reconcile(bank.environment(), "sql.execute", {}, fixed=CANCEL, call_id="call_1")
        assert found.happened is False
    with pytest.raises(ToolFailed, match="recorded as one that never runs"):
        bank.take(10, "call_1")
    assert bank.balance == 100


# --- a real connection that breaks


@pytest.mark.parametrize(("lost", "done"), [("reply", 1), ("request", 0)])
def test_a_commit_whose_answer_is_lost_is_done_exactly_once(
    postgres: str, lost: str, done: int
) -> None:
    bank = _postgres_bank(postgres)
    bank.take(1, "call_0")  # the ledger is there
    with running_breaker(postgres) as (breaker, url):
        breaker.breaks = [lost]
        with pytest.raises(ToolOutcomeUnknown) as caught:
            bank.take(10, "call_1", url=url)
        assert caught.value.repeatable
        assert bank.ledger == 1 + done
        assert bank.take(10, "call_1", url=url, attempt=2)["rows"] == [{"balance": 89}]
    assert (bank.balance, bank.ledger) == (89, 2)


def test_lost_commits_among_eight_at_once(postgres: str) -> None:
    bank = _postgres_bank(postgres)
    bank.take(1, "call_0")
    with running_breaker(postgres) as (breaker, url):
        breaker.breaks = ["reply", "request", "request", "reply"]

        def insist(_: int) -> dict[str, JsonValue]:
            for attempt in range(1, 20):
                try:
                    return bank.take(10, "call_1", url=url, attempt=attempt)
                except (ToolNotRun, ToolOutcomeUnknown):
                    continue
            raise AssertionError("it never ran")

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = list(pool.map(insist, range(8)))
    assert all(result == results[0] for result in results)
    assert (bank.balance, bank.ledger) == (89, 2)


def test_no_server_means_that_nothing_was_sent(postgres: str) -> None:
    bank = _postgres_bank(postgres)
    with running_breaker(postgres) as (_, url):
        pass
    with pytest.raises(ToolNotRun, match="no connection"):
        bank.take(10, "call_1", url=url)


def test_a_ledger_that_may_not_be_made(postgres: str) -> None:
    bank = _postgres_bank(postgres)
    environment = bank.environment(create_ledger=False)
    arguments: dict[str, JsonValue] = {"parameters": {"name": "Ann", "amount": 1}}
    with pytest.raises(ToolFailed, match="celeriac_call_ledger"):
        call(environment, "sql.execute", arguments, fixed=CANCEL)
    assert bank.balance == 100


# --- reading


def test_reading(bank: Bank) -> None:
    found = bank.query("SELECT name, balance FROM account ORDER BY name")
    rows: JsonValue = [{"name": "Ann", "balance": 100}, {"name": "Ben", "balance": 100}]
    assert found == {"branch": "completed", "rows": rows}


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE account SET balance = 0",
        "DELETE FROM account",
        "INSERT INTO account VALUES ('Eve', 1)",
        "DROP TABLE account",
        "SELECT 1; DELETE FROM account",
        "SELECT 1; COMMIT; DELETE FROM account",
        "/* select */ DELETE FROM account",
        "-- select\nDELETE FROM account",
        "COMMIT",
        "PRAGMA query_only = 0",
        "ATTACH DATABASE '/etc/passwd' AS other",
        "SET TRANSACTION READ WRITE",
        "COPY account TO '/tmp/celeriac-copy'",
        "WITH gone AS (DELETE FROM account RETURNING *) SELECT * FROM gone",
        "SELECT * FROM nothing",
        ";",
    ],
)
def test_what_is_no_reading_is_refused(bank: Bank, sql: str) -> None:
    with pytest.raises(ToolFailed, match="rejected: "):
        bank.query(sql)
    assert bank.ask("SELECT count(*), sum(balance) FROM account") == [(2, 200)]


def test_many_rows_are_cut_and_say_so(bank: Bank) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i FROM n"
    found = bank.query(numbers, row_limit=50)
    rows = cast("list[JsonValue]", found["rows"])
    assert (found["branch"], len(rows)) == ("truncated", 50)
    found = bank.query(numbers, row_limit=5000, byte_limit=2048)
    assert found["branch"] == "truncated"
    assert len(json.dumps(found["rows"])) < 2500


def test_two_columns_of_one_name(bank: Bank) -> None:
    rows: JsonValue = [{"a": 1, "a_2": 2}]
    assert bank.query("SELECT 1 AS a, 2 AS a")["rows"] == rows


def test_a_statement_that_takes_too_long(bank: Bank) -> None:
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    )
    with pytest.raises(ToolFailed, match="rejected: "):
        bank.query(endless, timeout_seconds=0.3)


# --- what the model gets, and what the operator writes


def test_a_statement_is_a_tool_of_its_own(bank: Bank) -> None:
    definition = definition_of(bank.environment(), "sql.execute", CANCEL)
    assert definition.name == "sql_take_money"
    assert definition.description == "Take money from an account."
    assert definition.source == "SQL (main)"
    properties = cast("dict[str, dict[str, JsonValue]]", definition.input_schema["properties"])
    assert list(properties) == ["parameters"]
    assert properties["parameters"]["required"] == ["name", "amount"]
    assert "UPDATE account" in definition.claims["statement"]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            {"sql": "DELETE FROM account WHERE name = {}", "description": "x"},
            "does not declare 'who'",
        ),
        (
            {"sql": "DELETE FROM account", "description": "x", "parameters": {"who": {}}},
            "does not use the parameter 'who'",
        ),
        ({"sql": "DELETE FROM account"}, "description"),
        (
            {
                "sql": "DELETE FROM account WHERE name = {}",
                "description": "x",
                "parameters": {"who": {"type": "words"}},
            },
            "no JSON Schema",
        ),
    ],
)
def test_statements_that_cannot_be_used_are_refused_at_the_start(
    bank: Bank, statement: dict[str, JsonValue], told: str
) -> None:
    mark = "%(who)s" if bank.dialect == "postgresql" else ":who"
    written = {**statement, "sql": str(statement["sql"]).replace("{}", mark)}
    environment = bank.environment(statements={"takeMoney": written})
    with pytest.raises(ConfigurationError, match=told):
        definition_of(environment, "sql.execute", CANCEL)


def test_a_statement_that_is_not_configured(bank: Bank) -> None:
    with pytest.raises(ConfigurationError, match="has no 'sellEverything', which an agent uses"):
        definition_of(bank.environment(), "sql.execute", {"statement": "sellEverything"})


def test_a_password_in_the_url_is_refused() -> None:
    environment = {
        "CELERIAC_CONNECTION_MAIN_CONNECTOR": "sql",
        "CELERIAC_CONNECTION_MAIN_URL": "postgresql://ann:hunter2@127.0.0.1/bank",
    }
    with pytest.raises(ConfigurationError, match="holds a password") as caught:
        definition_of(environment, "sql.query")
    assert "hunter2" not in str(caught.value)
