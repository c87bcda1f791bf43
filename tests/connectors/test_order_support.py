"""The demo agent over real SQLite files."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from celeriac.connectors.order_support import OrderDesk, order_support
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import ToolFailed
from celeriac.sessions.settings import load_settings
from celeriac.sessions.tools import FunctionTool, InvalidArguments, ToolContext, needs_approval

TOOLS = {entry.definition.name: entry for entry in order_support.tools}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OrderDesk:
    path = tmp_path / "made on use" / "desk.sqlite"
    monkeypatch.setenv("CELERIAC_ORDER_DESK", str(path))
    return OrderDesk(path)


def run(tool: FunctionTool, call_id: str = "call_1", **arguments: str | float) -> object:
    context = ToolContext(
        session_id="ses_1", call_id=call_id, idempotency_key=f"key of {call_id}", attempt=1
    )
    returned = tool.invoke(arguments, context)

    async def wait() -> object:
        assert inspect.isawaitable(returned)
        return await returned

    return asyncio.run(wait()) if inspect.isawaitable(returned) else returned


def executions(desk: OrderDesk) -> list[tuple[str, str]]:
    return [(effect.call_id, effect.tool) for effect in desk.effects()]


def test_the_tools_declare_what_they_do() -> None:
    declared = {
        name: (entry.definition.effect, needs_approval(entry.definition.approval, {}))
        for name, entry in TOOLS.items()
    }
    assert declared == {
        "look_up_order": (ToolEffect.READ, False),
        "set_note": (ToolEffect.IDEMPOTENT_WRITE, False),
        "cancel_order": (ToolEffect.NON_IDEMPOTENT_WRITE, True),
    }
    for entry in TOOLS.values():
        assert entry.definition.input_schema["required"] in (["order_id"], ["order_id", "note"])


def test_a_look_up_returns_the_order_and_is_counted(desk: OrderDesk) -> None:
    order = run(TOOLS["look_up_order"], order_id="1002")
    assert order == {
        "order_id": "1002",
        "item": "Copper trowel",
        "total": "39.00",
        "status": "processing",
        "note": "",
    }
    assert executions(desk) == [("call_1", "look_up_order")]


def test_all_five_orders_are_there(desk: OrderDesk) -> None:
    for order_id in ("1001", "1002", "1003", "1004", "1005"):
        assert desk.look_up(order_id, call_id="c").order_id == order_id


def test_a_note_is_written_once_per_key(desk: OrderDesk) -> None:
    for _attempt in (1, 2):
        order = run(TOOLS["set_note"], order_id="1001", note="leave at the door")
        assert isinstance(order, dict)
        assert order["note"] == "leave at the door"
    assert executions(desk) == [("call_1", "set_note")]


def test_a_repeated_attempt_does_not_undo_a_newer_note(desk: OrderDesk) -> None:
    run(TOOLS["set_note"], "call_1", order_id="1001", note="old")
    run(TOOLS["set_note"], "call_2", order_id="1001", note="new")
    run(TOOLS["set_note"], "call_1", order_id="1001", note="old")
    assert desk.look_up("1001", call_id="c").note == "new"


def test_cancelling_takes_effect_once_and_then_fails_without_effect(desk: OrderDesk) -> None:
    run(TOOLS["cancel_order"], order_id="1003")
    with pytest.raises(ToolFailed, match="already cancelled"):
        run(TOOLS["cancel_order"], "call_2", order_id="1003")
    assert executions(desk) == [("call_1", "cancel_order")]
    assert desk.look_up("1003", call_id="c").status == "cancelled"


@pytest.mark.parametrize("name", ["look_up_order", "set_note", "cancel_order"])
def test_an_unknown_order_fails_without_effect(desk: OrderDesk, name: str) -> None:
    note = {"note": "x"} if name == "set_note" else {}
    with pytest.raises(ToolFailed, match="no order '9999'"):
        run(TOOLS[name], order_id="9999", **note)
    assert desk.effects() == []


def test_the_effect_lies_between_the_two_delays(desk: OrderDesk) -> None:
    async def cancel_in_the_middle(**delays: float) -> None:
        context = ToolContext(session_id="s", call_id="c", idempotency_key="c", attempt=1)
        running = TOOLS["cancel_order"].invoke({"order_id": "1002", **delays}, context)
        assert inspect.isawaitable(running)
        task = asyncio.ensure_future(running)
        for _ in range(1000):
            if desk.effects(call_id="c") or "delay_seconds" in delays:
                break
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_in_the_middle(delay_seconds=60))
    assert desk.effects() == []
    asyncio.run(cancel_in_the_middle(delay_after_seconds=60))
    assert len(desk.effects()) == 1


@pytest.mark.parametrize("delay", [-1, 10_000, "soon"])
def test_a_delay_out_of_range_is_refused(desk: OrderDesk, delay: float | str) -> None:
    with pytest.raises(InvalidArguments, match="delay_seconds"):
        run(TOOLS["look_up_order"], order_id="1001", delay_seconds=delay)
    assert not desk.path.exists()


def test_an_effect_and_its_row_are_one_transaction(desk: OrderDesk) -> None:
    desk.effects()
    with sqlite3.connect(desk.path) as db:
        db.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON effects BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    db.close()
    with pytest.raises(sqlite3.IntegrityError):
        desk.cancel("1002", call_id="c")
    with sqlite3.connect(desk.path) as db:
        row = db.execute("SELECT status FROM orders WHERE order_id = '1002'").fetchone()
    db.close()
    assert row == ("processing",)


def test_many_processes_may_make_the_desk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "desk.sqlite"
    program = (
        "import sys; from pathlib import Path\n"
        "from celeriac.connectors.order_support.desk import OrderDesk\n"
        "desk = OrderDesk(Path(sys.argv[1])); sys.stdin.read()\n"
        "for n in range(10): desk.look_up('1001', call_id=sys.argv[2])\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path), f"call_{number}"], stdin=subprocess.PIPE
        )
        for number in range(6)
    ]
    for process in processes:
        # The end of its input lets each go on, all at nearly the same time.
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait(50) for process in processes] == [0] * 6
    assert len(OrderDesk(path).effects()) == 60


def test_the_desk_lies_in_the_data_directory_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CELERIAC_ORDER_DESK", raising=False)
    expected = load_settings().data_dir / "order_desk.sqlite"
    assert OrderDesk.of_environment().path == expected
