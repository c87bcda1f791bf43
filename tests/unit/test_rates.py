"""What counts as done, and in which minute."""

from __future__ import annotations

from collections import Counter

import pytest

from celeriac.sessions.rates import Count, Outcome, Work, counted, rates_of
from celeriac.sessions.snapshot import StepRecord
from celeriac.sessions.state import SCHEMA_VERSION, SessionState, Step, StepName
from celeriac.web.charts import charts_of

MINUTE = 29_934_005
AT = MINUTE * 60_000 + 59_999


def record(
    name: StepName = StepName.CALL_TOOL, status: str = "succeeded", worker: str | None = "w"
) -> StepRecord:
    return StepRecord(id="s1", name=name, status=status, worker=worker, started_at=0, ended_at=AT)


def state(*names: str) -> SessionState:
    return SessionState(
        schema_version=SCHEMA_VERSION,
        session_id="ses_000000000000000000000000",
        agent="a",
        model="m",
        created_at=0,
        updated_at=0,
        steps=tuple(Step(id=name, name=StepName.CALL_TOOL, created_at=0) for name in names),
    )


@pytest.mark.parametrize(
    ("one", "open_steps", "expected"),
    [
        (record(), (), (Work.TOOL, Outcome.SUCCEEDED)),
        (record(StepName.RUN_MODEL), ("s2",), (Work.MODEL, Outcome.SUCCEEDED)),
        (record(StepName.COMPACT_CONTEXT), (), (Work.MODEL, Outcome.SUCCEEDED)),
        (record(status="failed"), (), (Work.TOOL, Outcome.FAILED)),
        (record(status="failed"), ("s1",), (Work.TOOL, Outcome.RETRIED)),
        (record(status="lost"), ("s1",), (Work.TOOL, Outcome.RETRIED)),
        (record(status="outcome_unknown"), (), (Work.TOOL, Outcome.UNKNOWN)),
    ],
)
def test_an_attempt_is_counted_by_how_it_ended(
    one: StepRecord, open_steps: tuple[str, ...], expected: tuple[Work, Outcome]
) -> None:
    assert counted([one], state(*open_steps)) == {(MINUTE, *expected): 1}


@pytest.mark.parametrize(
    "one",
    [
        record(status="returned"),
        record(status="cancelled"),
        record(status="failed", worker=None),
        record(StepName.AWAIT_TOOL_APPROVAL, "approved"),
        record(StepName.RECONCILE_CALL),
    ],
)
def test_what_is_no_attempt_is_not_counted(one: StepRecord) -> None:
    assert not counted([one], state())


def test_the_last_hour_ends_with_this_minute_and_the_counter_begins_at_the_full_hour() -> None:
    counts: Counter[Count] = Counter(
        {(MINUTE - ago, Work.TOOL, Outcome.FAILED): ago + 1 for ago in range(70)}
    )
    (found,) = [one for one in rates_of(counts, AT) if sum(one.per_minute)]
    assert found.per_minute == tuple(range(60, 0, -1))
    assert found.since_hour == sum(range(1, MINUTE % 60 + 2))


def test_a_chart_has_a_bar_for_each_minute_and_says_in_words_what_it_shows() -> None:
    counts: Counter[Count] = Counter(
        {
            (MINUTE, Work.TOOL, Outcome.SUCCEEDED): 1_999,
            (MINUTE - 59, Work.TOOL, Outcome.FAILED): 1,
        }
    )
    charts = {one.title: one for one in charts_of(rates_of(counts, AT))}
    tools = charts["Tool calls"]
    assert tools.words == "Tool calls: 2,000 in the last hour, at most 1,999 a minute"
    assert tools.path == "M0 40v-2h1.6v2zM118 40v-40h1.6v40z"
    assert charts["Failed"].path == "M0 40v-40h1.6v40z"
    assert charts["Model calls"].words == "Model calls: none in the last hour"
    assert charts["Model calls"].path == ""
