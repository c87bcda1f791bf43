"""How an agent asks its models: the few settings that providers share, and a place for the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

__all__ = ["ModelSettings"]


class ModelSettings(BaseModel):
    """Settings of model calls. What is None is left to the provider.

    Raises:
        pydantic.ValidationError: A value is out of range, or a field is unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    max_output_tokens: int | None = Field(None, ge=1)
    """Most tokens of one answer, reasoning included."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """How long a reasoning model may think; thinking budgets are derived from it where a provider wants one."""
    api: Literal["chat", "responses"] | None = None
    """Which API of OpenAI is used. None: responses for the reasoning models of OpenAI, chat for all others."""
    prompt_caching: bool = True
    """Whether requests mark what a provider shall cache, where it wants marks (Anthropic)."""
    extra: Mapping[str, JsonValue] = Field(default_factory=dict)
    """More arguments of litellm, as they are; they win over the fields above."""
