"""Real workers send their spans to a collector, those of the last moment before they end included."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from celeriac.tasks.otel import turn_span_context
from tests.tasks.cluster import Cluster

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("otel")]


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Span]]]:
    """An OTLP collector: its address, and every span that it was sent."""
    spans: list[Span] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_the_spans_of_a_turn_arrive_from_every_worker_before_it_ends(
    cluster: Cluster, collector: tuple[str, list[Span]], pool: str
) -> None:
    address, spans = collector
    cluster.restore(0)
    env = {
        "CELERIAC_OTEL": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": address,
        "CELERIAC_WORKER_POOL": pool,
        "CELERIAC_WORKER_CONCURRENCY": "2",
    }
    workers = cluster.start_workers(2, env=env)
    sessions = [cluster.say("/tool look {}") for _ in range(4)]
    for session_id in sessions:
        cluster.idle(session_id)
    assert [worker.stop() for worker in workers] == [0, 0]
    for session_id in sessions:
        ids = turn_span_context(session_id, "t1")
        mine = [span for span in spans if span.trace_id == ids.trace_id.to_bytes(16)]
        assert sorted(span.name for span in mine) == [
            "CallTool",
            "RunModel",
            "RunModel",
            "chat watched",
            "chat watched",
            "execute_tool look",
            "invoke_agent faults",
        ]
        (root,) = [span for span in mine if not span.parent_span_id]
        assert root.span_id == ids.span_id.to_bytes(8)
        assert {span.parent_span_id for span in mine if span.name.endswith(("Tool", "Model"))} == {
            root.span_id
        }
