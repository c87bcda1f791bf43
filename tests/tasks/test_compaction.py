"""Long conversations on real workers: they are summarised and go on, and a summary that fails loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.errors import InvalidRequest
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Role
from celeriac.sessions.settings import Settings
from celeriac.sessions.snapshot import Snapshot
from tests.tasks.cluster import PATIENCE, Cluster, Mark, last_answer, results
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("compaction")]

LONG = "x" * 2_000
"""With its echo it fills the window of the narrow agent."""


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    agents = str(Path(__file__).with_name("narrow_agents.py"))
    with Cluster(tmp_path_factory.mktemp("narrow"), agents=agents) as made:
        yield made


@pytest.fixture
def pair(clusters: Cluster) -> Iterator[Cluster]:
    """Two workers; every request to the model was well-formed, the summariser's as well."""
    clusters.restore(2)
    summaries_end(clusters, "well")
    yield clusters
    assert clusters.model_problems() == []
    assert [mark for mark in clusters.marks("summary") if mark.more["problems"]] == []


def summaries_end(cluster: Cluster, how: str) -> None:
    (cluster.root / "summary-ends").write_text(how)


def full_session(cluster: Cluster, agent: str = "narrow") -> str:
    """A session whose next model call needs a compaction."""
    session_id = cluster.say(LONG, agent=agent)
    assert LONG in cluster.answer(session_id)
    return session_id


def summaries(snapshot: Snapshot) -> list[str]:
    return [message.text for message in snapshot.messages if message.role is Role.SUMMARY]


def route(cluster: Cluster, session_id: str) -> list[tuple[str, str]]:
    """The steps of the newest turn that asked a model, with how each ended."""
    steps = cluster.client.steps(session_id)
    names = {"RunModel", "CompactContext"}
    last = steps[-1].turn_id
    return [(s.name.value, s.status) for s in steps if s.name.value in names and s.turn_id == last]


def last_model_mark(cluster: Cluster, session_id: str) -> Mark:
    return cluster.marks("model", session_id)[-1]


def test_a_long_conversation_is_summarised_and_goes_on(pair: Cluster) -> None:
    session_id = full_session(pair)
    pair.client.send_message(session_id, "and now?")
    assert pair.answer(session_id) == "You said: and now?"
    assert route(pair, session_id) == [
        ("RunModel", "returned"),
        ("CompactContext", "succeeded"),
        ("RunModel", "succeeded"),
    ]
    snapshot = pair.snapshot(session_id)
    assert [message.role for message in snapshot.messages] == [
        Role.USER,
        Role.ASSISTANT,
        Role.USER,
        Role.SUMMARY,
        Role.ASSISTANT,
    ]
    assert snapshot.messages[3].covers_before == 2
    assert snapshot.messages[0].text == LONG, "nothing of the conversation is lost"
    (mark,) = pair.marks("summary", session_id)
    assert mark.more["tools"] == 0
    assert "[User]\nxxxx" in str(mark.more["text"])
    assert last_model_mark(pair, session_id).more["texts"] == [
        "summary: Summary of what was said.",
        "user: and now?",
    ]
    assert snapshot.usage.model_calls == 3
    assert (snapshot.usage.input_tokens or 0) >= 1_000


def test_a_session_is_compacted_as_often_as_it_must(pair: Cluster) -> None:
    session_id = full_session(pair)
    for number in range(6):
        pair.client.send_message(session_id, f"{number} {LONG[:1_500]}")
        assert f"{number} xx" in pair.answer(session_id)
    made = pair.marks("summary", session_id)
    assert len(made) >= 3
    assert all("Earlier summary" in str(mark.more["text"]) for mark in made[1:])
    assert pair.marks("too long", session_id) == []


def test_mh_04_nothing_of_open_and_unknown_calls_is_lost_to_a_summary(pair: Cluster) -> None:
    session_id = pair.say('/tool charge {"end": "memory"}', agent="narrow")
    (unknown,) = pair.idle(session_id).calls
    pair.client.send_message(session_id, "/tool charge_approved {}")
    pending = pair.waiting(session_id)
    # Queued while a call waits: it starts no compaction, however long it is.
    pair.client.send_message(session_id, LONG)
    pair.client.cancel_turn(session_id, by="ana")
    pair.idle(session_id)
    assert pair.client.call(session_id, pending.id).status is CallStatus.CANCELLED
    assert pair.marks("summary", session_id) == []
    pair.client.send_message(session_id, "and now?")
    wait_until(
        lambda: last_answer(pair.snapshot(session_id)) == "You said: and now?",
        "the last message is answered",
        timeout_seconds=PATIENCE,
    )
    (summary,) = summaries(pair.idle(session_id))
    assert f"{unknown.id} of charge" in summary
    pair.client.reconcile(session_id, unknown.id, succeeded=True, by="ana")
    pair.client.send_message(session_id, "well?")
    pair.idle(session_id)
    assert pair.client.call(session_id, unknown.id).status is CallStatus.SUCCEEDED
    texts = str(last_model_mark(pair, session_id).more["texts"])
    assert "it did happen" in texts


@pytest.mark.parametrize("how", ["empty", "cut", "with-calls"])
def test_mh_04_a_failing_summary_fails_the_turn_and_loses_nothing(pair: Cluster, how: str) -> None:
    session_id = full_session(pair)
    summaries_end(pair, how)
    pair.client.send_message(session_id, "and now?")
    snapshot = pair.idle(session_id)
    assert snapshot.messages[-1].role is Role.NOTICE
    assert "could not be summarised, nothing of them is lost" in snapshot.messages[-1].text
    assert [mark.attempt for mark in pair.marks("summary", session_id)] == [1, 2, 3]
    assert [
        one.status for one in pair.client.steps(session_id) if one.name == "CompactContext"
    ] == ["failed"] * 3
    assert summaries(snapshot) == []
    assert snapshot.calls == (), "no call of a summary exists"
    summaries_end(pair, "well")
    pair.client.send_message(session_id, "still there?")
    assert pair.answer(session_id) == "You said: still there?"
    assert len(summaries(pair.snapshot(session_id))) == 1


def test_a_summary_whose_worker_is_killed_is_made_again(pair: Cluster) -> None:
    session_id = full_session(pair)
    summaries_end(pair, "held")
    pair.client.send_message(session_id, "and now?")
    pair.entered("summary", session_id)
    pair.worker_of(session_id).kill()
    pair.entered("summary", session_id, times=2)
    summaries_end(pair, "well")
    pair.open_gate("summary")
    assert pair.answer(session_id) == "You said: and now?"
    assert [status for name, status in route(pair, session_id) if name == "CompactContext"] == [
        "lost",
        "succeeded",
    ]
    assert len(summaries(pair.snapshot(session_id))) == 1
    (pair.root / "gate-summary").unlink()


def test_stop_ends_a_summary_and_keeps_nothing_of_it(pair: Cluster) -> None:
    session_id = full_session(pair)
    summaries_end(pair, "held")
    pair.client.send_message(session_id, "and now?")
    pair.entered("summary", session_id)
    pair.client.cancel_turn(session_id, by="ana")
    snapshot = pair.idle(session_id)
    assert route(pair, session_id) == [("RunModel", "returned"), ("CompactContext", "cancelled")]
    assert summaries(snapshot) == []
    assert snapshot.messages[-1].text == "The user stopped this turn."
    summaries_end(pair, "well")
    pair.client.send_message(session_id, "go on")
    assert pair.answer(session_id) == "You said: go on"


def test_a_model_that_finds_the_request_too_long_gets_a_summary(pair: Cluster) -> None:
    """The policy's window is far larger than the model's own."""
    session_id = full_session(pair, "misjudged")
    for number in range(3):
        pair.client.send_message(session_id, f"{number} {LONG[:1_000]}")
        assert f"{number} xx" in pair.answer(session_id)
    assert pair.marks("too long", session_id)
    assert summaries(pair.snapshot(session_id))


def test_compactions_that_do_not_help_are_bounded(pair: Cluster) -> None:
    session_id = full_session(pair, "misjudged")
    pair.client.send_message(session_id, "x" * 8_000)
    snapshot = pair.idle(session_id)
    notice = snapshot.messages[-1]
    assert notice.failure is FailureKind.TOO_LARGE
    assert "too large for the model narrow, even with its older messages summarised" in notice.text
    assert "maximum context length" in notice.text
    assert len(pair.marks("summary", session_id)) <= 2
    pair.client.send_message(session_id, "and now?")
    assert pair.answer(session_id) == "You said: and now?"


def test_without_a_policy_the_models_own_limit_fails_the_turn(pair: Cluster) -> None:
    session_id = full_session(pair, "without-policy")
    pair.client.send_message(session_id, "x" * 8_000)
    notice = pair.idle(session_id).messages[-1]
    assert notice.failure is FailureKind.TOO_LARGE
    assert "too large for the model narrow, and this agent has no CompactionPolicy" in notice.text
    assert "maximum context length" in notice.text
    assert pair.marks("summary", session_id) == []


@pytest.mark.parametrize("tool", ["read_book", "read_picture", "write_much"])
def test_mh_14_a_huge_result_is_cut_and_its_call_succeeds(pair: Cluster, tool: str) -> None:
    session_id = pair.say(f"/tool {tool} {{}}", agent="large")
    snapshot = pair.idle(session_id)
    (call,) = snapshot.calls
    assert (call.status, call.attempts) == (CallStatus.SUCCEEDED, 1)
    (text,) = results(snapshot)
    settings = Settings()
    assert len(text.encode()) < settings.result_shown_bytes + 100
    assert len(str(call.result).encode()) < settings.result_kept_bytes + 100
    match tool:
        case "read_book":
            assert text.startswith("ééé")
            assert text.endswith("[cut here: 5,000,000 bytes in full, 32,768 shown]")
            assert "\ufffd" not in text
        case "read_picture":
            assert "[image: image/png, 4,194,304 bytes; not shown to the model]" in text
            assert "a cat" in text
            assert "AAAA" not in text
            assert "AAAA" not in str(call.result)
        case _:
            assert text.endswith("[cut here: 3,000,014 bytes in full, 32,768 shown]")
            assert len(pair.marks("written", "much")) == 1
    assert last_answer(snapshot).startswith(f"{tool} returned: ")


def test_mh_14_a_message_that_is_too_large_is_refused_before_it_is_stored(pair: Cluster) -> None:
    session_id = pair.say("hello", agent="large")
    pair.idle(session_id)
    with pytest.raises(InvalidRequest) as refusal:
        pair.client.send_message(session_id, "x" * 2_000_000)
    assert refusal.value.code == "message_too_large"
    assert len(pair.snapshot(session_id).messages) == 2
