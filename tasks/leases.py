"""Keep the leases of running steps alive, for as long as this process lives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from celeriac.sessions.errors import StoreUnavailable
from celeriac.sessions.state import ControlVerb
from celeriac.sessions.store.sessions import Claim, SessionStore
from celeriac.tasks.logs import log_facts

__all__ = ["LeaseKeeper", "turn_is_stopped"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    claim: Claim
    cancelled: threading.Event = field(default_factory=threading.Event)


class LeaseKeeper:
    """Renews the lease of every held claim each third of its length.

    A step that ends within that time costs nothing here. The thread runs in the process that runs the
    steps, so the leases of a dead process end by themselves.

    Args:
        store: The session store.
        lease_seconds: Length of a lease.
    """

    def __init__(self, store: SessionStore, lease_seconds: float) -> None:
        self._store = store
        self._interval = lease_seconds / 3
        self._held: dict[int, _Held] = {}
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def held(self) -> int:
        """How many steps are running."""
        return len(self._held)

    def cancelled(self, claim: Claim) -> threading.Event:
        """Return the event that is set once the held claim's turn was stopped."""
        return self._held[claim.token].cancelled

    @contextmanager
    def hold(self, claim: Claim) -> Iterator[None]:
        """Keep a claim's lease while the block runs."""
        with self._lock:
            self._held[claim.token] = _Held(claim)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="celeriac-leases", daemon=True
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._held.pop(claim.token, None)

    def _run(self) -> None:
        known: set[int] = set()
        while not self._idle.wait(self._interval):
            with self._lock:
                held = dict(self._held)
            # A claim is renewed from the second look on: its lease lasts three intervals.
            for token in known & held.keys():
                claim = held[token].claim
                about = {"session_id": claim.loaded.state.session_id, "step_id": claim.step.id}
                with log_facts(about):
                    self._renew(held[token])
            known = set(held)

    def _renew(self, held: _Held) -> None:
        claim = held.claim
        session_id = claim.loaded.state.session_id
        try:
            if turn_is_stopped(self._store, session_id):
                held.cancelled.set()
            if not self._store.renew(session_id, claim.step.id, claim.token):
                _log.warning(
                    "Step %s of %s is no longer ours; its result will count as late.",
                    claim.step.id,
                    session_id,
                )
        except StoreUnavailable:
            # Tried again at the next look; the claim stays valid until somebody takes it.
            return
        except Exception:  # noqa: BLE001
            # Its session is gone, say. The leases of the other steps depend on this thread.
            _log.exception("The lease of step %s of %s was not renewed", claim.step.id, session_id)


def turn_is_stopped(store: SessionStore, session_id: str) -> bool:
    """Say whether a person stopped the session's open turn.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    turn = store.load(session_id).state.turn
    control = turn.control if turn else None
    return control is not None and control.verb is ControlVerb.CANCEL
