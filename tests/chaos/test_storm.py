"""Workers, store and web are killed at random while sessions go on; nothing is lost and nothing done twice.

``CELERIAC_CHAOS_SESSIONS=50 CELERIAC_CHAOS_ROUNDS=30 make chaos`` runs a larger storm;
``CELERIAC_CHAOS_SEED`` repeats one (the choices, not the moments).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.storm import Storm
from tests.tasks.cluster import Cluster

SESSIONS = int(os.environ.get("CELERIAC_CHAOS_SESSIONS", "12"))
ROUNDS = int(os.environ.get("CELERIAC_CHAOS_ROUNDS", "8"))

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("storm")]


@pytest.mark.parametrize("over_http", [False, True], ids=["clients", "over-http"])
def test_every_session_reaches_its_end_and_nothing_happens_twice(
    tmp_path: Path, over_http: bool
) -> None:
    seed = int(os.environ.get("CELERIAC_CHAOS_SEED", secrets.randbelow(10**6)))
    token = hashlib.sha256(b"ana").hexdigest()
    began = time.monotonic()
    with Cluster(tmp_path / "c", env={"CELERIAC_OPERATORS": f"ana:operator:{token}"}) as cluster:
        storm = Storm(cluster, SESSIONS, seed, over_http=over_http)
        sys.stdout.write(f"seed {seed}\n")
        storm.run(ROUNDS)
        ends = storm.check()
        lost = storm.attempts_lost()
        storm.approve_the_rest()
    sys.stdout.write(
        f"{SESSIONS} sessions, {dict(storm.kills)} killed, {lost} attempts lost, "
        f"calls ended {dict(ends)}, {time.monotonic() - began:.0f} s\n"
    )
