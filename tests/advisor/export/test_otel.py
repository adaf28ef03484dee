"""OpenTelemetry: what a receiver gets, and the same as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from advisor.export import otel
from advisor.export.nodes import nodes
from advisor.metrics.base import Metrics
from advisor.report.quantities import quantities
from advisor.runs.load import load
from profiler.errors import ProfilerError

proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
metrics_proto = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

STARTED = 1_700_000_000_000_000_000


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in (
        otel.ENDPOINT,
        otel.FOR_SPANS,
        otel.FOR_METRICS,
        "OTEL_SERVICE_NAME",
        "OTEL_RESOURCE_ATTRIBUTES",
        "OTEL_EXPORTER_OTLP_HEADERS",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def receiver(monkeypatch):
    """Run an OTLP/HTTP receiver on this machine; return its requests: path, headers and body."""
    got = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.path, dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(getattr(server, "status", 200))
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.got = got
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def spans_of(messages):
    for message in messages:
        for resource in message.resource_spans:
            about = {each.key: each.value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    yield about, span


def sent(folder):
    otel.send(nodes(folder, load(folder)), Metrics(load(folder)))


def test_receiver_gets_one_trace_per_step_with_phases(folder, receiver):
    sent(folder)
    messages = [
        proto.ExportTraceServiceRequest.FromString(body) for path, _, body in receiver.got if path == "/v1/traces"
    ]
    spans = list(spans_of(messages))
    steps = [(about, span) for about, span in spans if span.name == "step"]

    assert len(messages) > 1
    assert len(steps) == 151
    assert len({span.trace_id for _, span in steps}) == 151
    assert len({span.span_id for _, span in spans}) == len(spans)
    about, first = next((about, span) for about, span in steps if about["profile_train.rank"].int_value == 2)
    assert about["host.name"].string_value == "b"
    assert about["service.name"].string_value == "profile-train"
    assert first.start_time_unix_nano == STARTED + 1_000_000_000, "its node's clock began a second after the first"
    assert first.end_time_unix_nano - first.start_time_unix_nano == 100_000_000
    inside = [span for _, span in spans if span.parent_span_id == first.span_id]
    assert [(span.name, span.end_time_unix_nano - span.start_time_unix_nano) for span in inside] == [
        ("data_wait", 20_000_000),
        ("forward", 30_000_000),
        ("backward", 40_000_000),
        ("optimizer", 4_000_000),
        ("other", 6_000_000),
    ]
    assert {span.trace_id for span in inside} == {first.trace_id}


def test_receiver_gets_metrics_of_report(folder, receiver):
    sent(folder)
    (body,) = [body for path, _, body in receiver.got if path == "/v1/metrics"]
    (resource,) = metrics_proto.ExportMetricsServiceRequest.FromString(body).resource_metrics
    got = {one.name: one for one in resource.scope_metrics[0].metrics}
    expected = {f"profile_train.{one.name}": one for one in quantities(Metrics(load(folder))) if one.value is not None}

    assert got.keys() == expected.keys()
    assert all(one.gauge.data_points[0].as_double == expected[name].value for name, one in got.items())
    assert got["profile_train.step_time_mean"].unit == "s"
    assert got["profile_train.host_rss"].unit == "By"
    assert got["profile_train.step_time_mean"].gauge.data_points[0].time_unix_nano == STARTED + 20_000_000_000


def test_repeated_export_has_same_identifiers(folder, receiver):
    sent(folder)
    first = [body for path, _, body in receiver.got if path == "/v1/traces"]
    receiver.got.clear()
    sent(folder)

    assert [body for path, _, body in receiver.got if path == "/v1/traces"] == first


def test_opentelemetry_environment_variables_apply(folder, receiver, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=vision")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
    sent(folder)
    _, headers, body = receiver.got[0]
    about, _ = next(spans_of([proto.ExportTraceServiceRequest.FromString(body)]))

    assert {name.lower(): value for name, value in headers.items()}["authorization"] == "Bearer x"
    assert (about["service.name"].string_value, about["team"].string_value) == ("mine", "vision")


def test_endpoint_for_metrics_gets_only_metrics(folder, receiver, monkeypatch):
    monkeypatch.setenv(otel.FOR_METRICS, os.environ[otel.ENDPOINT] + "/mine")
    monkeypatch.delenv(otel.ENDPOINT)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine")
    sent(folder)
    ((path, _, body),) = receiver.got
    (resource,) = metrics_proto.ExportMetricsServiceRequest.FromString(body).resource_metrics

    assert path == "/mine"
    assert {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"] == "mine"


def test_rejection_by_receiver_is_reported(folder, receiver):
    receiver.status = 400

    with pytest.raises(ProfilerError, match="did not accept the whole run") as error:
        sent(folder)
    assert "4318" in error.value.remedy


def test_missing_endpoint_error_names_environment_variable(folder):
    with pytest.raises(ProfilerError, match="no endpoint") as error:
        sent(folder)
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in error.value.remedy


def test_file_has_same_messages_as_otlp_json(folder, receiver, tmp_path):
    sent(folder)
    otel.write(nodes(folder, load(folder)), Metrics(load(folder)), tmp_path / "run.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    written = [
        span
        for line in lines
        for resource in line.get("resourceSpans", ())
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    messages = [
        proto.ExportTraceServiceRequest.FromString(body) for path, _, body in receiver.got if path == "/v1/traces"
    ]

    assert [(span["traceId"], span["spanId"], span.get("parentSpanId", ""), span["name"]) for span in written] == [
        (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.name)
        for _, span in spans_of(messages)
    ]
    assert written[0]["startTimeUnixNano"] == str(STARTED + 1_000_000_000)
    assert type(written[0]["kind"]) is int
    assert list(lines[-1]) == ["resourceMetrics"]


def test_without_opentelemetry_it_says_what_to_install(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.common.trace_encoder", None)

    with pytest.raises(ProfilerError, match="needs opentelemetry") as error:
        otel.write(nodes(folder, load(folder)), Metrics(load(folder)), tmp_path / "run.jsonl")
    assert "profile-train[export]" in error.value.remedy
