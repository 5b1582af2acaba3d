"""A span for each step of a request whose trace is wanted, below the door's own (Envoy's)."""

import logging
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bundle_door.requests import trace_id
from bundle_door.watching.steps import Report
from bundle_serving.process.traces import SERVICE, TRACEPARENT, Collector

# What a collector that is away may hold up, also the door's end.
TIMEOUT_S = 2


class Spans:
    """Sent together, by a thread; what a collector does not take is dropped."""

    def __init__(self, collector: Collector) -> None:
        # Envoy, which sends to the same collector, logs that it is away.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        resource = Resource.create({SERVICE_NAME: SERVICE})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=collector.url, timeout=TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(__name__)
        self._propagator = TraceContextTextMapPropagator()

    def report(self, report: Report) -> None:
        # The steps' clock is that of the machine, which counts from its start.
        offset = time.time_ns() - time.monotonic_ns()
        about = {name: getattr(report, name) for name in ("version", "requests", "rows", "failed")}
        for traceparent in filter(trace_id, report.traces):
            parent = self._propagator.extract({TRACEPARENT: traceparent})
            span = self._tracer.start_span(
                report.model, parent, attributes=about, start_time=report.began + offset
            )
            span.end(report.ended + offset)

    def close(self) -> None:
        self._provider.force_flush()
