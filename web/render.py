"""Untrusted text as safe HTML: markdown of models and people, arguments and results of tools.

Nothing remote is ever loaded: images are not made, links stay links and show where they lead. Characters
that hide or reorder what a person reads are written out.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markupsafe import Markup, escape
from pydantic import JsonValue

__all__ = ["ArgumentRow", "argument_rows", "exact", "markdown", "pretty_json", "visible"]

_TAGS: Final = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li",
    "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES: Final = {"a": {"href"}, "ol": {"start"}, "span": {"class"}}


def _show_hosts(state: StateCore) -> None:
    """After each link, say in plain text which host it leads to."""
    for block in state.tokens:
        if block.type == "inline" and block.children:
            block.children = list(_with_hosts(block.children))


def _with_hosts(tokens: Iterable[Token]) -> Iterator[Token]:
    hosts: list[str] = []
    for token in tokens:
        yield token
        if token.type == "link_open":
            hosts.append(_host(str(token.attrGet("href") or "")))
        elif token.type == "link_close" and (host := hosts.pop()):
            shown = Token("html_inline", "", 0)
            shown.content = f' <span class="host">({escape(host)})</span>'
            yield shown


def _host(href: str) -> str:
    try:
        parts = urlsplit(href)
        host = parts.hostname or ""
    except ValueError:
        return ""
    return parts.path if parts.scheme == "mailto" else host


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(
        ["table", "strikethrough"]
    )
    # Without the rule an image's text stays as it was written, address and all.
    parser.disable("image")
    parser.core.ruler.push("hosts", _show_hosts)
    return parser


_MARKDOWN: Final = _parser()


@lru_cache(maxsize=2048)
def markdown(text: str) -> Markup:
    """Render markdown of an untrusted author.

    Args:
        text: The markdown.

    Returns:
        HTML without images, raw HTML, styles or scripts; links carry ``rel`` and show their host.
    """
    html = _MARKDOWN.render(text)
    clean = nh3.clean(
        html,
        tags=set(_TAGS),
        attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        allowed_classes=None,
    )
    return Markup(clean)  # noqa: S704 - nh3 has just cleaned it


_SHOWN_PLAINLY: Final = {"\n", "\t", " "}
# Format characters (bidi controls, zero width, tags), controls, private use, and blanks that are no space.
_HIDDEN_CATEGORIES: Final = {"Cf", "Cc", "Co", "Cs", "Zs", "Zl", "Zp"}
_HIDDEN_LETTERS: Final = {"\u115f", "\u1160", "\u3164", "\uffa0", "\u2800", "\u034f"}


def visible(text: str) -> Markup:
    """Escape text and write out characters that hide or reorder it, as in ``U+202E``.

    Args:
        text: Any text.

    Returns:
        HTML in which each such character is a marked code.
    """
    if text.isascii() and text.isprintable():
        return escape(text)
    return Markup("").join(_visible_character(character) for character in text)


def _visible_character(character: str) -> Markup:
    if character in _SHOWN_PLAINLY:
        return Markup(character)  # noqa: S704 - one of three blanks
    category = unicodedata.category(character)
    if category in _HIDDEN_CATEGORIES or character in _HIDDEN_LETTERS or _is_variation(character):
        name = unicodedata.name(character, "control character").lower()
        return Markup('<span class="hidden-character" title="{}">U+{:04X}</span>').format(
            name, ord(character)
        )
    return escape(character)


def _is_variation(character: str) -> bool:
    # U+FE0F only asks for the coloured form of an emoji; the others can smuggle bytes.
    return "\ufe00" <= character <= "\ufe0e" or "\U000e0100" <= character <= "\U000e01ef"


def pretty_json(value: JsonValue) -> str:
    """Return a value as indented JSON, or a text as it is."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2)


@dataclass(frozen=True, slots=True)
class ArgumentRow:
    """One argument: its name, its type in words, and its exact value."""

    name: str
    type: str
    text: str

    @property
    def long(self) -> bool:
        """Whether it wants a box of its own."""
        return len(self.text) > 120 or "\n" in self.text


def argument_rows(arguments: JsonValue) -> list[ArgumentRow]:
    """Return a call's arguments as rows of a table.

    Args:
        arguments: The validated object, or the model's raw text when it was no JSON object.

    Returns:
        One row per argument; nested values keep their exact JSON.
    """
    if isinstance(arguments, Mapping):
        return [
            ArgumentRow(name, _type_words(value), exact(value)) for name, value in arguments.items()
        ]
    return [ArgumentRow("(not an object)", _type_words(arguments), exact(arguments))]


def _type_words(value: JsonValue) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes/no"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return f"list of {len(value)}" if isinstance(value, list) else "object"


def exact(value: JsonValue) -> str:
    """Return a value as a person reads it in a line: yes or no, a text as it is, anything else as JSON."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return "null" if value is None else pretty_json(value)
