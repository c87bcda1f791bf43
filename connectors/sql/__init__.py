"""The SQL connector: reading with SQL, and writing with configured statements, exactly once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from jsonschema import SchemaError
from pydantic import JsonValue

from celeriac.connectors.schemas import validator_of
from celeriac.connectors.sdk import Call, Connector, Described, Manifest, Operation, Outcome
from celeriac.connectors.sql import ledger, postgres, sqlite
from celeriac.connectors.sql.ledger import Database, Result, Rows
from celeriac.sessions.errors import ConfigurationError, ToolFailed, ToolNotRun
from celeriac.sessions.jsonsafe import dump_json

__all__ = ["SqlConnector"]

_FIRST_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/|\()*([a-z]+)", re.IGNORECASE | re.DOTALL)
_READS = frozenset({"select", "with", "values", "table", "show", "explain"})
_MOST_ROWS = 100
_PARAMETER = {
    "postgresql": re.compile(r"%\(([A-Za-z_][A-Za-z0-9_]*)\)s"),
    "sqlite": re.compile(r"(?<!:):([A-Za-z_][A-Za-z0-9_]*)"),
}


class SqlConnector(Connector):
    """One database."""

    manifest = Manifest.of_package(__name__)

    def __init__(self, configuration: Mapping[str, JsonValue]) -> None:
        super().__init__(configuration)
        self._url = self.text("url")
        self._sqlite = self._url.startswith("sqlite:")
        self._statements = _objects(configuration.get("statements"))
        if not self._sqlite:
            postgres.require_driver()
            _require_no_password(self._url)
        for name, statement in self._statements.items():
            _check_statement(name, statement, "sqlite" if self._sqlite else "postgresql")

    def describe(self, operation: Operation, fixed: Mapping[str, JsonValue]) -> Described | None:
        """Say what a statement does, and which parameters it has."""
        if operation.id != "execute":
            return None
        name = str(fixed.get("statement"))
        statement = self._statements.get(name)
        if statement is None:
            known = ", ".join(self._statements) or "none"
            raise ConfigurationError(
                f"configuration.statements has no {name!r}, which an agent uses; it has: {known}"
            )
        parameters: JsonValue = _schema_of(statement)
        schema: dict[str, JsonValue] = {
            "type": "object",
            "additionalProperties": False,
            "required": ["parameters"],
            "properties": {"parameters": parameters},
        }
        relied_on = {"statement": str(statement["sql"])}
        return Described(str(statement["description"]), schema, relied_on)

    async def query(self, call: Call) -> Outcome:
        """Read."""
        sql = str(call.arguments["sql"])
        word = _FIRST_WORD.match(sql)
        if word is None or word[1].lower() not in _READS:
            begins = ", ".join(sorted(_READS)).upper()
            return Outcome("rejected", message=f"a query begins with one of {begins}")
        limit = self._number("rowLimit")
        if self._sqlite:
            work = asyncio.to_thread(sqlite.read, self._path, sql, self._seconds, limit)
        else:
            work = asyncio.to_thread(postgres.read, self._place(call), sql, limit)
        found = await work
        return found if isinstance(found, Outcome) else self._shown(found)

    async def execute(self, call: Call) -> Outcome:
        """Run a statement once, whatever breaks and however often it is asked for."""
        name = str(call.arguments["statement"])
        statement = self._statements.get(name)
        if statement is None:
            raise ToolNotRun(f"the connection has no statement {name!r} any more")
        parameters = _object(call.arguments["parameters"])
        request = ledger.request_hash(name, parameters)
        most = statement.get("maxRows", _MOST_ROWS)
        limit = self._number("rowLimit")

        def work(database: Database) -> Result:
            return ledger.execute_once(
                database,
                call.idempotency_key,
                request,
                lambda: database.run(str(statement["sql"]), parameters, limit),
                most_rows=int(str(most)),
            )

        return await self._transact(call, work)

    async def find_execution(self, call: Call) -> Outcome:
        """Look a call up in the ledger."""
        return await self._transact(
            call, lambda database: ledger.find(database, call.idempotency_key)
        )

    async def check(self, call: Call) -> str:
        """Read a constant."""
        if self._sqlite:
            found = await asyncio.to_thread(sqlite.read, self._path, "SELECT 1", self._seconds, 1)
        else:
            found = await asyncio.to_thread(postgres.read, self._place(call), "SELECT 1", 1)
        if isinstance(found, Outcome):
            raise ToolFailed(found.message)
        return "the database answers"

    async def _transact(self, call: Call, work: ledger.Work) -> Outcome:
        if self._sqlite:
            table, seconds = self.text("ledgerTable"), self._seconds
            return await asyncio.to_thread(sqlite.transact, self._path, table, seconds, work)
        return await asyncio.to_thread(postgres.transact, self._place(call), work)

    def _shown(self, found: Rows) -> Outcome:
        limit, most = self._number("rowLimit"), self._number("byteLimit")
        rows = ledger.as_objects(found)
        kept = rows[:limit]
        while kept and len(dump_json(kept).encode()) > most:
            kept = kept[: len(kept) * 3 // 4]
        whole = len(kept) == len(rows)
        value: dict[str, JsonValue] = {"rows": kept}
        if not whole:
            value["note"] = f"only the first {len(kept):,} rows; ask for fewer rows or columns"
        return Outcome("completed" if whole else "truncated", value)

    @property
    def _path(self) -> str:
        return unquote(self._url.removeprefix("sqlite:///"))

    @property
    def _seconds(self) -> float:
        return float(str(self.configuration["timeoutSeconds"]))

    def _number(self, field: str) -> int:
        return int(str(self.configuration[field]))

    def _place(self, call: Call) -> postgres.Place:
        password = call.credentials.get("password")
        return postgres.Place(
            self._url,
            None if password is None else password.reveal(),
            self._seconds,
            self.text("ledgerTable"),
            creates_ledger=bool(self.configuration["createLedger"]),
        )


def _object(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _objects(value: JsonValue) -> dict[str, dict[str, JsonValue]]:
    return {name: _object(inner) for name, inner in _object(value).items()}


def _schema_of(statement: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    properties = _object(statement.get("parameters"))
    required: list[JsonValue] = list(properties)
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": properties,
        "description": "Parameters of the statement.",
    }


def _require_no_password(url: str) -> None:
    try:
        password = urlsplit(url).password
    except ValueError as error:
        raise ConfigurationError(f"configuration.url: no URL ({error})") from None
    if password is not None or "password=" in url:
        raise ConfigurationError(
            "configuration.url holds a password; move it to credentials.password"
        )


def _check_statement(name: str, statement: Mapping[str, JsonValue], dialect: str) -> None:
    where = f"configuration.statements.{name}"
    written = set(_PARAMETER[dialect].findall(_without_texts(str(statement["sql"]))))
    declared = set(_object(statement.get("parameters")))
    for missing in sorted(written - declared):
        raise ConfigurationError(
            f"{where}.parameters does not declare {missing!r}, which the SQL names"
        )
    for unused in sorted(declared - written):
        how = f"%({unused})s" if dialect == "postgresql" else f":{unused}"
        raise ConfigurationError(f"{where}.sql does not use the parameter {unused!r}; write {how}")
    schema = _schema_of(statement)
    try:
        type(validator_of(schema)).check_schema(schema)
    except SchemaError as error:
        raise ConfigurationError(f"{where}.parameters: no JSON Schema: {error}"[:300]) from None


def _without_texts(sql: str) -> str:
    return re.sub(r"'(?:[^']|'')*'", "''", sql)
