"""The thread that keeps leases alive outlives whatever ails one of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from celeriac.sessions.errors import NotFound
from celeriac.sessions.store.sessions import Claim, SessionStore
from celeriac.tasks.leases import LeaseKeeper
from tests.waiting import wait_until


class Store:
    """A store that lost the session ``lost``."""

    def __init__(self) -> None:
        self.looks = 0
        self.renewed: list[str] = []

    def load(self, session_id: str) -> SimpleNamespace:
        if session_id == "lost":
            self.looks += 1
            raise NotFound("There is no such session.", code="unknown_session")
        return SimpleNamespace(state=SimpleNamespace(turn=None))

    def renew(self, session_id: str, step_id: str, token: int) -> bool:
        self.renewed.append(f"{session_id} {step_id} {token}")
        return True


def claim(session_id: str, token: int) -> Claim:
    state = SimpleNamespace(session_id=session_id)
    made = SimpleNamespace(
        loaded=SimpleNamespace(state=state), step=SimpleNamespace(id="s1"), token=token
    )
    return cast("Claim", made)


def test_a_session_that_is_gone_costs_no_other_step_its_lease() -> None:
    store = Store()
    keeper = LeaseKeeper(cast("SessionStore", store), lease_seconds=0.03)
    with keeper.hold(claim("lost", 1)), keeper.hold(claim("here", 2)):
        wait_until(lambda: store.looks > 1, "the lost one is looked at again")
        before = len(store.renewed)
        wait_until(lambda: len(store.renewed) > before + 1, "the other one is renewed")
    assert set(store.renewed) == {"here s1 2"}
