"""Tool calls from the pieces of a stream: never glued, never lost, or refused as a whole."""

from __future__ import annotations

import json
import random

import pytest

from celeriac.connectors.tool_call_assembly import BrokenCalls, ToolCallAssembly, ToolCallPiece

Chunk = list[ToolCallPiece]


def piece(
    arguments: str = "",
    *,
    index: int | None = None,
    id: str | None = None,  # noqa: A002 - the provider's word
    name: str | None = None,
) -> ToolCallPiece:
    return ToolCallPiece(index=index, id=id, name=name, arguments=arguments)


def assemble(*chunks: Chunk) -> list[tuple[str | None, str, str]]:
    assembly = ToolCallAssembly()
    for chunk in chunks:
        assembly.add(chunk)
    return [(call.provider_id, call.name, call.arguments) for call in assembly.finish()]


TWO = [("x", "look_up", '{"a":1}'), ("y", "cancel", '{"b":2}')]
TWO_WITHOUT_IDS = [(None, name, arguments) for _id, name, arguments in TWO]


def test_one_call_in_pieces() -> None:
    assert assemble(
        [piece(index=0, id="x", name="look_up")],
        [piece('{"a', index=0)],
        [piece('":1}', index=0)],
    ) == [TWO[0]]


def test_two_calls_with_the_same_index_and_different_ids() -> None:
    assert (
        assemble(
            [piece(index=0, id="x", name="look_up")],
            [piece('{"a":1}', index=0)],
            [piece(index=0, id="y", name="cancel")],
            [piece('{"b":2}', index=0)],
        )
        == TWO
    )


def test_a_new_id_at_the_same_index_begins_a_call_even_before_the_first_has_arguments() -> None:
    assert assemble(
        [piece(index=0, id="x", name="look_up")],
        [piece('{"b":2}', index=0, id="y", name="cancel")],
    ) == [("x", "look_up", "{}"), TWO[1]]


def test_interleaved_pieces_by_index_with_ids_only_at_the_start() -> None:
    assert (
        assemble(
            [piece(index=0, id="x", name="look_up"), piece(index=1, id="y", name="cancel")],
            [piece('{"b"', index=1), piece('{"a"', index=0)],
            [piece(":1}", index=0)],
            [piece(":2}", index=1)],
        )
        == TWO
    )


def test_interleaved_pieces_of_one_index_by_id() -> None:
    assert (
        assemble(
            [piece('{"a"', index=0, id="x", name="look_up")],
            [piece('{"b"', index=0, id="y", name="cancel")],
            [piece(":1}", index=0, id="x")],
            [piece(":2}", index=0, id="y")],
        )
        == TWO
    )


def test_two_whole_objects_in_a_row_without_ids_are_two_calls() -> None:
    assert (
        assemble(
            [piece('{"a":1}', index=0, name="look_up")],
            [piece('{"b":2}', index=0, name="cancel")],
        )
        == TWO_WITHOUT_IDS
    )


def test_the_same_tool_twice_without_ids_is_two_calls() -> None:
    assert (
        assemble(
            [piece('{"a":1}', index=0, name="look_up")], [piece('{"a":1}', index=0, name="look_up")]
        )
        == [(None, "look_up", '{"a":1}')] * 2
    )


@pytest.mark.parametrize(
    "chunks",
    [
        [[piece('{"a":1}', index=0, name="look_up")], [piece('{"b":2}', index=0)]],
        [[piece('{"a":1}{"b":2}', index=0, name="look_up")]],
        [[piece('{"a":', index=0, name="look_up")], [piece('1}{"b":2}', index=0)]],
    ],
)
def test_a_second_object_without_a_name_breaks_the_response(chunks: list[Chunk]) -> None:
    with pytest.raises(BrokenCalls):
        assemble(*chunks)


def test_an_id_that_arrives_last_belongs_to_its_call() -> None:
    assert (
        assemble(
            [piece(index=0, name="look_up")],
            [piece('{"a":1}', index=0)],
            [piece(index=0, id="x")],
            [piece(index=1, name="cancel")],
            [piece('{"b":2}', index=1)],
            [piece(index=1, id="y")],
        )
        == TWO
    )


def test_ids_without_an_index() -> None:
    assert (
        assemble(
            [piece(id="x", name="look_up")],
            [piece('{"a":1}', id="x")],
            [piece(id="y", name="cancel")],
            [piece('{"b":2}')],
        )
        == TWO
    )


def test_neither_index_nor_id() -> None:
    assert (
        assemble(
            [piece(name="look_up")],
            [piece('{"a":1}')],
            [piece(name="cancel")],
            [piece('{"b":2}')],
        )
        == TWO_WITHOUT_IDS
    )
    assert assemble([piece(name="one"), piece(name="two")]) == [
        (None, "one", "{}"),
        (None, "two", "{}"),
    ]


def test_two_calls_of_one_chunk_that_share_index_and_name_are_two() -> None:
    assert (
        assemble([piece("{}", index=0, name="look_up"), piece("{}", index=0, name="look_up")])
        == [(None, "look_up", "{}")] * 2
    )


def test_calls_that_share_an_id_at_different_indexes_are_two() -> None:
    assert assemble(
        [piece(index=0, id="call_0", name="look_up")],
        [piece('{"a":1}', index=0)],
        [piece('{"b":2}', index=1, id="call_0", name="cancel")],
    ) == [("call_0", "look_up", '{"a":1}'), ("call_0", "cancel", '{"b":2}')]


def test_id_and_name_may_be_repeated_with_every_piece() -> None:
    assert assemble(
        [piece("", index=0, id="x", name="look_up")],
        [piece('{"a"', index=0, id="x", name="look_up")],
        [piece(":1}", index=0, id="x", name="look_up")],
        [piece("", index=0, id="x", name="look_up")],
    ) == [TWO[0]]


def test_braces_and_quotes_in_strings_end_nothing() -> None:
    arguments = '{"a": "}{\\"}", "b": [{"c": "\\\\"}]}'
    assert json.loads(arguments)
    chunks = [[piece(char, index=0)] for char in arguments]
    assert assemble([piece(index=0, id="x", name="t")], *chunks) == [("x", "t", arguments)]


@pytest.mark.parametrize(
    "arguments", ["", " \n", "{}"], ids=["nothing", "space", "an empty object"]
)
def test_a_tool_without_parameters(arguments: str) -> None:
    [(_id, _name, text)] = assemble([piece(arguments, index=0, id="x", name="t")])
    assert json.loads(text) == {}


@pytest.mark.parametrize("arguments", ['"text"', "[1]", "null", "order 1001", "{a:1}"])
def test_arguments_that_are_no_json_object_stay_as_the_model_wrote_them(arguments: str) -> None:
    assert assemble([piece(arguments, index=0, id="x", name="t")]) == [("x", "t", arguments)]


@pytest.mark.parametrize("arguments", ["{", '{"a', '{"a":1', '{"a":"}', '{"a":[{}', '{"a":"\\'])
def test_mh_10_cut_arguments_break_the_response_with_its_complete_calls(arguments: str) -> None:
    with pytest.raises(BrokenCalls, match="cut"):
        assemble(
            [piece('{"a":1}', index=0, id="x", name="look_up")],
            [piece(arguments, index=1, id="y", name="cancel")],
        )


def test_a_call_without_a_name_breaks_the_response() -> None:
    with pytest.raises(BrokenCalls, match="name"):
        assemble([piece('{"a":1}', index=0, id="x")])


def test_another_name_in_the_middle_of_a_call_breaks_the_response() -> None:
    with pytest.raises(BrokenCalls, match="two names"):
        assemble([piece('{"a"', index=0, name="look_up")], [piece(":1}", index=0, name="cancel")])


def test_any_cutting_of_indexed_calls_gives_the_same_calls() -> None:
    """Whatever the sizes and order of the pieces, calls with their own index come out whole."""
    chance = random.Random(7)
    for _round in range(200):
        calls = [
            (f"id{n}", f"tool{n}", json.dumps({"text": '{"}' * n, "n": [n, {}]}))
            for n in range(chance.randint(1, 4))
        ]
        chunks: list[list[Chunk]] = []
        for index, (call_id, name, arguments) in enumerate(calls):
            cuts = sorted(chance.sample(range(len(arguments) + 1), 3))
            parts = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
            rest = [[piece(part, index=index)] for part in parts]
            chunks.append([[piece(index=index, id=call_id, name=name)], *rest])
        started = [queue.pop(0) for queue in chunks]
        order = [at for at, queue in enumerate(chunks) for _ in queue]
        chance.shuffle(order)
        assert assemble(*started, *(chunks[at].pop(0) for at in order)) == calls
