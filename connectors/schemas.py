"""JSON Schemas that somebody else wrote: each is checked by the draft that it names."""

from __future__ import annotations

from collections.abc import Mapping

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from pydantic import JsonValue

__all__ = ["validator_of"]


def validator_of(schema: Mapping[str, JsonValue]) -> Validator:
    """Return what checks values by a schema; without ``$schema`` that is draft 2020-12."""
    plain = dict(schema)
    return validator_for(plain, default=jsonschema.Draft202012Validator)(plain)
