"""What a call used, what that cost and who answered, as far as the provider reported it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

from celeriac.connectors.litellm_fields import field_of
from celeriac.sessions.messages import Usage

__all__ = ["has_reported", "reported_model", "usage_from", "usage_of"]


class _Prices(Protocol):
    def cost_per_token(self, **arguments: object) -> tuple[float, float]: ...


def reported_model(chunks: Iterable[object]) -> str | None:
    """Return the model's name as the provider gave it; litellm puts the asked one into the chunks themselves.

    Args:
        chunks: The chunks as litellm gave them.
    """
    for chunk in chunks:
        name = field_of(field_of(chunk, "_hidden_params"), "provider_response_model")
        if isinstance(name, str) and name:
            return name
    return None


def usage_of(response: object, litellm: object, model: str) -> Usage:
    """Return what was reported in a stream of chat chunks.

    The last report counts: some providers report with every chunk, each time all so far. litellm makes up an
    estimate when nothing was reported, so this looks at the chunks as they came.

    Args:
        response: litellm's stream, read to its end.
        litellm: The module, for its prices.
        model: The model that was asked.

    Returns:
        Tokens and cost; what is unknown is None.
    """
    return usage_from(_last_report(response), litellm, model, reported_model(_chunks(response)))


def has_reported(response: object) -> bool:
    """Say whether a stream, however far it was read, has reported any usage."""
    return _last_report(response) is not None


def _last_report(response: object) -> object:
    reports = (field_of(chunk, "usage") for chunk in reversed(_chunks(response)))
    return next((report for report in reports if _tokens(report) is not None), None)


def _chunks(response: object) -> list[object]:
    chunks = field_of(response, "chunks")
    return chunks if isinstance(chunks, list) else []


def usage_from(report: object, litellm: object, model: str, reported: str | None = None) -> Usage:
    """Return what one report of usage says, be it of chat completions or of responses.

    Args:
        report: The provider's report as litellm gives it; None when there was none.
        litellm: The module, for its prices.
        model: The model that was asked.
        reported: The model that answered, as its provider names it.

    Returns:
        Tokens and cost; what is unknown is None. A report of no tokens at all counts as none.
    """
    tokens = _tokens(report)
    if tokens is None:
        return Usage(model_calls=1)
    read = field_of(report, "prompt_tokens_details") or field_of(report, "input_tokens_details")
    wrote = field_of(report, "completion_tokens_details") or field_of(
        report, "output_tokens_details"
    )
    usage = Usage(
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        # Both are part of the input: litellm adds Anthropic's up.
        cached_tokens=_first(read, "cached_tokens", report, "cache_read_input_tokens"),
        cache_write_tokens=_first(
            read, "cache_creation_tokens", report, "cache_creation_input_tokens"
        ),
        reasoning_tokens=_count(wrote, "reasoning_tokens"),
        model_calls=1,
    )
    cost = _cost(cast("_Prices", litellm), model, usage, report)
    if cost is None and reported and model.startswith("azure/"):
        # There the asked name is a deployment, which has no price; the model behind it may.
        cost = _cost(cast("_Prices", litellm), f"azure/{reported}", usage, report)
    return usage.model_copy(update={"cost_usd": cost})


def _tokens(report: object) -> tuple[int | None, int | None] | None:
    read = _first(report, "prompt_tokens", report, "input_tokens")
    wrote = _first(report, "completion_tokens", report, "output_tokens")
    return (read, wrote) if read or wrote else None


def _cost(litellm: _Prices, model: str, usage: Usage, report: object) -> float | None:
    arguments: dict[str, object] = {
        "model": model,
        "prompt_tokens": usage.input_tokens or 0,
        "completion_tokens": usage.output_tokens or 0,
    }
    if _count(report, "prompt_tokens") is not None:
        arguments["usage_object"] = report
    else:
        arguments["cache_read_input_tokens"] = usage.cached_tokens or 0
        arguments["cache_creation_input_tokens"] = usage.cache_write_tokens or 0
    try:
        prices = litellm.cost_per_token(**arguments)
    except Exception:  # noqa: BLE001 - no price is known, for whatever reason; the answer counts
        return None
    return sum(prices) or None


def _first(holder: object, name: str, other: object, other_name: str) -> int | None:
    count = _count(holder, name)
    return _count(other, other_name) if count is None else count


def _count(holder: object, name: str) -> int | None:
    value = field_of(holder, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
