"""Takes keys out of texts: out of errors, which are stored and shown, and out of what workers log."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, unquote, urlsplit

__all__ = ["without_secrets"]

_REMOVED = "[removed]"
_SHORTEST = 8
"""A shorter value of the environment would be found in ordinary words."""

_SECRET_WORDS = ("KEY", "KEYS", "TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "CREDENTIALS")
"""How a word of a variable's name ends that holds a secret: OPENAI_API_KEY, AWS_ACCESS_KEY_ID, MYTOKEN2."""

_NAMES = (
    r"(?:x-)?(?:goog-)?api[-_ ]?key|authorization|(?:access|refresh|session|security)[-_]?token"
    r"|client[-_]secret|secret[-_]?access[-_]?key|x-amz-(?:signature|credential|security-token)"
    r"|subscription[-_]key|signature|password|secret"
)
_SHAPES = (
    # A private key, also as JSON and repr write it; one that was cut goes to the end.
    r"(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))",
    # A name and password within a URL.
    r"(?<=://)[^\s/@'\"]*:[^\s/@'\"]*(?=@)",
    # ?key=… and &sig=… of a URL.
    rf"(?P<query>[?&](?:key|sig|code|token|{_NAMES})=)[^&\s'\"<>)\]]+",
    # Authorization of any scheme, whatever is written around it.
    r"\b(?P<scheme>Bearer|Basic)(?:\s+|%20)[\w.~+/=*-]{6,}",
    r"\b(?P<aws>AWS4-HMAC-SHA256)\b[^'\"\n}]*",
    # "api-key": "…", api_key='…', x-api-key: ….
    rf"\b(?P<named>(?:{_NAMES})\\?[\"']?\s*[:=]\s*b?\\?[\"']?)(?!Bearer |Basic |AWS4-)[\w.~+/=*%-]{{8,}}",
    # OpenAI, Anthropic and who took over their form, masked ones too. They end no ordinary word ("task-…").
    r"\b(?:sk|pk|rk)-[\w*.-]{3,}",
    # Google.
    r"\bAIza[\w*-]{16,}|\bAQ\.[\w-]{20,}|\bya29\.[\w.-]{16,}",
    # AWS.
    r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b",
    # Groq, Hugging Face, xAI, Perplexity, NVIDIA, Replicate, Fireworks, GitHub, Slack.
    r"\b(?:gsk_|hf_|xai-|pplx-|nvapi-|r8_|fw_|gh[pousr]_|github_pat_|xox[abprs]-)[\w*-]{8,}",
    # JSON Web Tokens.
    r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?",
    # "Incorrect API key provided: abcd****wxyz", whatever its form.
    r"(?<=key provided: )[^\s'\"]*\*{3,}[^\s'\",]*",
)
_SECRET_SHAPE = re.compile("|".join(f"(?:{shape})" for shape in _SHAPES), re.IGNORECASE)


def without_secrets(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Remove everything that is a secret of the environment, or looks like a key.

    Args:
        text: A text of somebody else's, e.g. of a provider's error.
        environment: Environment variables; None for those of this process.

    Returns:
        The text with ``[removed]`` in place of each.
    """
    values = {*_secret_values(os.environ if environment is None else environment)}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, _REMOVED)
    return _SECRET_SHAPE.sub(_removed, text)


def _removed(found: re.Match[str]) -> str:
    """Keep the words that say what it was."""
    if found["scheme"] or found["aws"]:
        return f"{found['scheme'] or found['aws']} {_REMOVED}"
    return f"{found['query'] or found['named'] or ''}{_REMOVED}"


def _secret_values(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        words = [word.rstrip("0123456789") for word in name.upper().split("_")]
        secrets = [value.strip()] if any(word.endswith(_SECRET_WORDS) for word in words) else []
        if "://" in value and "@" in value:
            secrets += _passwords_of(value)
        for secret in secrets:
            if len(secret) >= _SHORTEST:
                # As it is, as a URL writes it, and as JSON and repr do.
                yield from (secret, quote(secret, safe=""), secret.replace("\n", "\\n"))


def _passwords_of(url: str) -> list[str]:
    try:
        password = urlsplit(url).password
    except ValueError:
        return []
    return [password, unquote(password)] if password else []
