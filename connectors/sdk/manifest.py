"""The manifest of a connector: what its operations are, what they do, and how each may end.

A manifest is data (``connector.json`` beside the connector's code). Everything that decides whether a call may be
repeated comes from it: effects, idempotency, branches. `manifest_faults` of `lint` says what is wrong with one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError
from pydantic.alias_generators import to_camel

from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import DefinitionError

__all__ = [
    "Agent",
    "Branch",
    "Egress",
    "Execution",
    "Idempotency",
    "IdempotencyMechanism",
    "Kind",
    "Manifest",
    "Operation",
    "Reconcile",
    "RecordedAs",
    "manifest_schema",
    "snake_case",
]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def _seconds(value: object) -> object:
    if isinstance(value, str) and (found := _DURATION.fullmatch(value)):
        return float(found[1]) * _UNITS[found[2]]
    raise ValueError("write a number with its unit: 500ms, 30s, 2m, 24h or 1d")


Duration = Annotated[
    float,
    BeforeValidator(_seconds),
    Field(gt=0, json_schema_extra={"type": "string", "pattern": f"^{_DURATION.pattern}$"}),
]
"""Seconds; a manifest writes them with a unit."""


def snake_case(operation: str) -> str:
    """Return an operation's id as Python and tools write it: ``postThreadReply`` → ``post_thread_reply``."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", operation).lower()


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=False
    )


class Kind(StrEnum):
    """Whether an operation only reads, or changes something."""

    QUERY = "query"
    MUTATION = "mutation"


class RecordedAs(StrEnum):
    """How a call is recorded that ended in a branch."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OUTCOME_UNKNOWN = "outcome_unknown"


class IdempotencyMechanism(StrEnum):
    """What makes a repetition harmless."""

    NONE = "none"
    """Nothing: the operation has one attempt."""
    KEY = "key"
    """The provider keeps the key of a request and answers a repetition with what it answered first."""
    CLIENT_ID = "clientId"
    """We name what is made, and the provider makes each name once."""
    ABSOLUTE = "absolute"
    """A repetition sets what is set already."""
    LEDGER = "ledger"
    """The Call ID is written in the same transaction as the effect."""
    LOOKUP = "lookup"
    """The effect can be found by a mark that it carries. That is no ground for a repetition, only for finding out."""


class Branch(_Part):
    """One way in which an operation may end."""

    id: Annotated[str, Field(pattern=r"^[a-z][A-Za-z0-9]{0,62}$")]
    record: RecordedAs
    description: str = ""


class Reconcile(_Part):
    """How to find out afterwards what became of a call."""

    operation: str
    """Id of a query of this connector that agents do not get. It is given the write's own arguments; a branch
    recorded as succeeded means that the write happened."""
    settle: Duration
    """How long a request may take to show up at the provider: nothing is looked up earlier."""
    conclusive: bool = False
    """Whether not finding it proves that it did not happen, and never will."""


class Idempotency(_Part):
    """What is known of repetitions of a mutation."""

    by: IdempotencyMechanism = IdempotencyMechanism.NONE
    valid_for: Duration | None = None
    """How long the provider keeps a key, counted from the first attempt; nothing is repeated later."""
    reconcile: Reconcile | None = None


class Agent(_Part):
    """What agents may do with an operation."""

    exposed: bool = False
    """Whether agents may have it at all."""
    retry: Literal["safe"] | None = None
    """``safe``: a repetition with the same Call ID does it once."""
    approval: Literal["recommended"] | None = None
    """``recommended``: it asks a person first unless the agent says otherwise."""
    fixed: tuple[str, ...] = ()
    """Arguments that the agent's definition sets and the model never sees."""
    result_max_bytes: Annotated[int, Field(ge=256, le=1024 * 1024)] | None = None
    """How much of a result the model reads."""


class Execution(_Part):
    """The time and the attempts of an operation."""

    timeout: Duration = 30.0
    attempts: Annotated[int, Field(ge=1, le=20)] = 3
    """Of a mutation that is not safe to repeat they only count attempts that certainly did nothing."""
    backoff: Duration = 1.0
    """The wait before the second attempt; it doubles."""


class Egress(_Part):
    """Where the connector may connect to."""

    hosts: tuple[str, ...] = ()
    """Names of hosts, exactly as in URLs."""
    from_configuration: tuple[str, ...] = ()
    """Fields of the configuration with a URL, or a list of hosts, that are allowed as well."""


class Operation(_Part):
    """One request that a connector can make."""

    id: Annotated[str, Field(pattern=r"^[a-z][A-Za-z0-9]{0,62}$")]
    kind: Kind
    description: Annotated[str, Field(min_length=1)]
    input_schema: dict[str, JsonValue]
    output_schema: dict[str, JsonValue] | None = None
    branches: tuple[Branch, ...]
    idempotency: Idempotency = Idempotency()
    agent: Agent = Agent()
    execution: Execution = Execution()

    @property
    def effect(self) -> ToolEffect:
        """What a call does to the world; nothing else than the manifest decides it."""
        if self.kind is Kind.QUERY:
            return ToolEffect.READ
        if self.agent.retry == "safe":
            return ToolEffect.IDEMPOTENT_WRITE
        return ToolEffect.NON_IDEMPOTENT_WRITE

    def record_of(self, branch: str) -> RecordedAs:
        """Return how a call is recorded that ended in a branch, declared or not."""
        for declared in self.branches:
            if declared.id == branch:
                return declared.record
        return RecordedAs.FAILED if self.kind is Kind.QUERY else RecordedAs.OUTCOME_UNKNOWN


class Manifest(_Part):
    """A connector as its ``connector.json`` describes it."""

    manifest: Literal["1"]
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,29}$")]
    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
    display_name: Annotated[str, Field(min_length=1)]
    description: Annotated[str, Field(min_length=1)]
    configuration: dict[str, JsonValue]
    """JSON Schema of a connection's configuration."""
    credentials: dict[str, JsonValue]
    """JSON Schema of a connection's credentials; all of them are texts."""
    egress: Egress = Egress()
    operations: Annotated[tuple[Operation, ...], Field(min_length=1)]

    @cached_property
    def operations_by_id(self) -> Mapping[str, Operation]:
        """The operations by id."""
        return {operation.id: operation for operation in self.operations}

    def tool_name(self, operation: str) -> str:
        """Return what the model calls an operation: ``slack_post_thread_reply``."""
        return f"{self.name}_{snake_case(operation)}"

    @classmethod
    def of_package(cls, package: str) -> Manifest:
        """Load the ``connector.json`` of a package.

        Args:
            package: Its import name.

        Raises:
            DefinitionError: There is none, or something is wrong with it; the message says what.
        """
        source = resources.files(package) / "connector.json"
        try:
            text = source.read_text(encoding="utf-8")
        except OSError as error:
            raise DefinitionError(f"{package} has no connector.json ({error})") from error
        return cls.parse(text, f"connector.json of {package}")

    @classmethod
    def of_file(cls, path: Path) -> Manifest:
        """Load a manifest file.

        Raises:
            DefinitionError: It cannot be read, or something is wrong with it; the message says what.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DefinitionError(f"{path} cannot be read: {error}") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, what: str) -> Manifest:
        """Read and check a manifest.

        Args:
            text: The JSON.
            what: What it is called in messages.

        Raises:
            DefinitionError: Something is wrong with it; the message names each fault.
        """
        # It needs this module.
        from celeriac.connectors.sdk.lint import manifest_faults  # noqa: PLC0415

        try:
            manifest = cls.model_validate(_json(text))
        except ValueError as error:
            raise DefinitionError(_listed(what, _reasons(error))) from None
        if faults := manifest_faults(manifest):
            raise DefinitionError(_listed(what, faults))
        return manifest


def manifest_schema() -> str:
    """Return the JSON Schema of manifests, as it is published."""
    schema = Manifest.model_json_schema(by_alias=True)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _json(text: str) -> JsonValue:
    def once(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"the key {key!r} stands twice")
            found[key] = value
        return found

    try:
        value: JsonValue = json.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _reasons(error: ValueError) -> list[str]:
    if not isinstance(error, ValidationError):
        return [f"no JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)]
    return [
        f"{'.'.join(str(part) for part in item['loc']) or 'manifest'}: {item['msg']}"
        for item in error.errors(include_url=False)
    ]


def _listed(what: str, faults: list[str]) -> str:
    return f"{what} cannot be used:\n" + "\n".join(f"  - {fault}" for fault in faults)
