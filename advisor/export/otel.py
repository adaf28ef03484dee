"""Export a run in OpenTelemetry's protocol: a trace per step of a rank, and metrics as gauges.

The phases of a step are the spans inside its trace; the gauges are the report's metrics. OpenTelemetry's own
exporter sends them, so its OTEL_ variables apply (endpoint, headers, timeout, certificates, resource attributes).
Alternatively they are written as OTLP's JSON, one message per line, which the collector's otlpjsonfile receiver reads.
A span has the same identifiers in every export of its run.
"""

import base64
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from advisor.atomic_write import whole
from advisor.export.extra import extra
from advisor.export.nodes import Node, in_time
from advisor.export.stretches import nanoseconds, stretches
from advisor.metrics.base import Metrics
from advisor.report.quantities import quantities
from advisor.runs.profile import Profile
from profiler.errors import ProfilerError
from profiler.schema import Run
from profiler.version import __version__

TOGETHER = 512
"""Spans per message, the number that the SDK's own processor sends at a time."""

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
FOR_SPANS, FOR_METRICS = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"

UNITS = {"B": "By", "count": "1", "FLOP/s": "{FLOP}/s", "kWh": "kW.h", "currency": "{currency}"}
"""Units with a different name in UCUM."""

SCOPE = "profile-train"


def send(nodes: Iterable[Node], metrics: Metrics) -> None:
    """Send the run to the endpoint that the environment names.

    Raises:
        ProfilerError: none is named, the endpoint did not accept everything, or the exporter is not installed.
    """
    variables = [
        variable for variable in (FOR_SPANS, FOR_METRICS) if os.environ.get(ENDPOINT) or os.environ.get(variable)
    ]
    if not variables:
        raise ProfilerError(
            "There is no endpoint to send to.", f"Set {ENDPOINT}, as http://localhost:4318, or write a file with --out."
        )
    package = "opentelemetry.exporter.otlp.proto.http"
    if FOR_SPANS in variables:
        _send(_needed(f"{package}.trace_exporter").OTLPSpanExporter(), _spans(nodes, metrics.profile))
    if FOR_METRICS in variables:
        _send(_needed(f"{package}.metric_exporter").OTLPMetricExporter(), (_gauges(metrics),))


def _send(exporter: Any, messages: Iterable[Any]) -> None:
    if not all(exporter.export(message).name == "SUCCESS" for message in messages):
        raise ProfilerError(
            "The endpoint did not accept the whole run.",
            f"Check that {ENDPOINT} is the base URL of an OTLP/HTTP receiver (port 4318; 4317 is gRPC's).",
        )


def write(nodes: Iterable[Node], metrics: Metrics, path: Path) -> None:
    """Write the same messages as JSON, one per line.

    Raises:
        ProfilerError: the file could not be written, or OpenTelemetry is not installed.
    """
    package = "opentelemetry.exporter.otlp.proto.common"
    encode_spans: Callable[[Any], Any] = _needed(f"{package}.trace_encoder").encode_spans
    encode_gauges: Callable[[Any], Any] = _needed(f"{package}.metrics_encoder").encode_metrics
    to_dict = _needed("google.protobuf.json_format").MessageToDict
    with whole(path) as temporary, open(temporary, "w", encoding="ascii", newline="\n") as file:
        for message in chain(
            map(encode_spans, _spans(nodes, metrics.profile)), map(encode_gauges, (_gauges(metrics),))
        ):
            encoded = to_dict(message, use_integers_for_enums=True)
            file.write(json.dumps(_with_hex(encoded), allow_nan=False) + "\n")


def _needed(module: str) -> Any:
    return extra(module, "OpenTelemetry's protocol")


def _with_hex(value: Any) -> Any:
    """Return the message with identifiers in hex, as OTLP's JSON requires; protobuf's JSON has base64."""
    if isinstance(value, list):
        return [_with_hex(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64decode(item).hex() if key in ("traceId", "spanId", "parentSpanId") else _with_hex(item)
        for key, item in value.items()
    }


def _spans(nodes: Iterable[Node], profile: Profile) -> Iterator[Sequence[Any]]:
    spans = (span for node in nodes for span in _of_node(node, profile.runs[0].started_at))
    while batch := list(islice(spans, TOGETHER)):
        yield batch


def _of_node(node: Node, began: float) -> Iterator[Any]:
    sdk, api = _needed("opentelemetry.sdk.trace"), _needed("opentelemetry.trace")
    scope = _needed("opentelemetry.sdk.util.instrumentation").InstrumentationScope(SCOPE, __version__)
    origin = nanoseconds(began)  # seconds since 1970 in a float are accurate only to a quarter of a us

    def span(trace: str, name: str, start: int, end: int, parent: Any, attributes: dict[str, Any]) -> Any:
        context = api.SpanContext(
            _number(trace, 16), _number(f"{trace} {name}", 8), False, api.TraceFlags(api.TraceFlags.SAMPLED)
        )
        return sdk.ReadableSpan(
            name,
            context=context,
            parent=parent,
            resource=resource,
            attributes=attributes,
            instrumentation_scope=scope,
            start_time=origin + start,
            end_time=origin + end,
        )

    for rank in node.ranks:
        pid, number = rank.process.pid, rank.process.rank
        labels = {"service.instance.id": f"{node.run.id}-{number}", "profile_train.rank": number, "process.pid": pid}
        resource = _resource(node.run, labels)
        for stretch in stretches(in_time(rank.steps, attrgetter("start")), node.clock):
            # The start is included because two training threads of a rank use the same step numbers.
            trace = f"{node.run.id} {pid} {stretch.step.index} {stretch.start}"
            fields = {"step": stretch.step.index, "steps": stretch.step.count, "tags": stretch.tags}
            attributes = {f"profile_train.{name}": value for name, value in fields.items()}
            root = span(trace, "step", stretch.start, stretch.end, None, attributes)
            yield root
            for name, start, end in stretch.phases:
                yield span(trace, name, start, end, root.context, {})


def _gauges(metrics: Metrics) -> Any:
    sdk = _needed("opentelemetry.sdk.metrics.export")
    scope = _needed("opentelemetry.sdk.util.instrumentation").InstrumentationScope(SCOPE, __version__)
    run = metrics.profile.runs[0]
    begin = nanoseconds(run.started_at)
    now = time.time_ns() if run.duration is None else nanoseconds(run.started_at + run.duration)
    gauges = [
        sdk.Metric(
            f"profile_train.{quantity.name}",
            quantity.meaning,
            UNITS.get(quantity.unit, quantity.unit),
            sdk.Gauge([sdk.NumberDataPoint({}, begin, now, float(quantity.value))]),
        )
        for quantity in quantities(metrics)
        if quantity.value is not None
    ]
    scope_metrics = sdk.ScopeMetrics(scope, gauges, "")
    return sdk.MetricsData([sdk.ResourceMetrics(_resource(run, {"service.instance.id": run.id}), [scope_metrics], "")])


def _resource(run: Run, more: dict[str, Any]) -> Any:
    resources = _needed("opentelemetry.sdk.resources")
    resource = resources.Resource.create()  # with the attributes from the environment
    attributes = {"host.name": run.host, "profile_train.run": run.id, **more}
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        attributes["service.name"] = SCOPE
    return resource.merge(resources.Resource(attributes))


def _number(text: str, size: int) -> int:
    """Return an identifier of `size` bytes."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()[:size], "big") or 1
