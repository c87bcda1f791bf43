"""Which model is asked: the names an agent allows, and what becomes of a name that is not among them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["allowed_models", "resolve_model"]


def allowed_models(models: Sequence[str], default: str | None) -> tuple[str, ...]:
    """Return the models that an agent may use.

    Args:
        models: Those of its definition, its own default first.
        default: The default of this worker (``CELERIAC_MODEL``), which every agent may use; None if unset.

    Returns:
        The names, the default first, each once.
    """
    return tuple(dict.fromkeys((default, *models) if default else models))


def resolve_model(wanted: str | None, allowed: Sequence[str]) -> str:
    """Choose the model for a call.

    A session keeps only a name, perhaps for years. One that is not allowed (any more) gets the default, so
    that no stored name ever makes a client or reaches a provider that nobody configured.

    Args:
        wanted: The session's model.
        allowed: The agent's models, the default first; at least one.

    Returns:
        A name out of `allowed`.
    """
    return wanted if wanted is not None and wanted in allowed else allowed[0]
