"""Untrusted text as safe HTML: markdown of models and people, arguments and results of tools.

Nothing remote is ever loaded: images are not made, links stay links and show where they lead. Characters
that hide or reorder what a person reads are written out.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markupsafe import Markup, escape
from pydantic import JsonValue

__all__ = [
    "ArgumentRow",
    "argument_rows",
    "exact",
    "markdown",
    "pretty_json",
    "prose",
    "visible",
    "written_out",
]

_TAGS: Final = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li",
    "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES: Final = {"a": {"href"}, "ol": {"start"}, "span": {"class", "title"}}
# Both scroll sideways when they are wide, which a keyboard can do only where the focus is.
_FOCUSABLE: Final = {"pre": {"tabindex": "0"}, "table": {"tabindex": "0"}}


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


class _Renderer(RendererHTML):
    """Writes out hidden characters, in code too."""

    def text(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        return prose(tokens[idx].content)

    def code_inline(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        return Markup("<code>{}</code>").format(prose(tokens[idx].content))

    def code_block(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        return Markup("<pre><code>{}</code></pre>\n").format(prose(tokens[idx].content))

    def fence(self, tokens: Sequence[Token], idx: int, *_: object) -> str:
        return self.code_block(tokens, idx)


def _parser() -> MarkdownIt:
    options = {"html": False, "linkify": False}
    parser = MarkdownIt("commonmark", options, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"])
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
        set_tag_attribute_values={tag: dict(values) for tag, values in _FOCUSABLE.items()},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        allowed_classes=None,
    )
    return Markup(clean)  # noqa: S704 - nh3 has just cleaned it


_SHOWN_PLAINLY: Final = {"\n", "\t", " "}
# Format characters (bidi controls, zero width, tags), controls, private use, and blanks that are no space.
_HIDDEN_CATEGORIES: Final = {"Cf", "Cc", "Co", "Cs", "Zs", "Zl", "Zp"}
_HIDDEN_LETTERS: Final = {"\u115f", "\u1160", "\u3164", "\uffa0", "\u2800", "\u034f"}
_ZWNJ: Final = "\u200c"
_ZWJ: Final = "\u200d"


def visible(text: str) -> Markup:
    """Escape text and write out characters that hide or reorder it, as in ``U+202E``.

    Args:
        text: Any text.

    Returns:
        HTML in which each such character is a marked code.
    """
    return _marked(text, _hidden_in(text))


def prose(text: str) -> Markup:
    """Do as `visible` does, but leave what ordinary writing needs: other blanks, and joiners that join.

    Args:
        text: What a person or a model wrote.

    Returns:
        HTML in which each character that hides or reorders is a marked code.
    """
    text = text.replace("\r\n", "\n")
    hidden = {one for one in _hidden_in(text) if unicodedata.category(one) != "Zs"}
    return _marked(text, hidden, may_join=True)


def written_out(text: str) -> str:
    """Return text as `visible` shows it, but for places that take no markup: titles and attributes."""
    hidden = _hidden_in(text)
    return "".join(_code(one) if one in hidden else one for one in text)


def _hidden_in(text: str) -> set[str]:
    return {one for one in set(text) if _hides(one)}


def _hides(character: str) -> bool:
    if character in _SHOWN_PLAINLY:
        return False
    if unicodedata.category(character) in _HIDDEN_CATEGORIES:
        return True
    return character in _HIDDEN_LETTERS or _is_variation(character)


def _marked(text: str, hidden: set[str], *, may_join: bool = False) -> Markup:
    if not hidden:
        return escape(text)
    shown: list[Markup] = []
    start = 0
    for match in re.finditer(f"[{re.escape(''.join(hidden))}]", text):
        at = match.start()
        if may_join and _joins(text, at):
            continue
        shown += [escape(text[start:at]), _mark(text[at])]
        start = at + 1
    return Markup("").join([*shown, escape(text[start:])])


def _mark(character: str) -> Markup:
    name = unicodedata.name(character, "control character").lower()
    span = Markup('<span class="hidden-character" title="{}">{}</span>')
    return span.format(name, _code(character))


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def _joins(text: str, at: int) -> bool:
    """Whether the character is a joiner where emoji, Arabic or an Indic script need one."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if text[at] not in {_ZWJ, _ZWNJ} or not before or not after:
        return False
    if unicodedata.category(after) == "So":
        return before == "\ufe0f" or unicodedata.category(before) in {"So", "Sk"}
    arabic = unicodedata.bidirectional(before) == unicodedata.bidirectional(after) == "AL"
    virama = 9
    return arabic or unicodedata.combining(before) == virama


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
