"""W3C trace context in the headers of jobs, where OpenTelemetry is installed."""

import contextlib
from typing import Any, Iterator, Mapping

from .body import RawJSON

try:
    from opentelemetry import context
    from opentelemetry.trace.propagation import tracecontext
except ImportError:
    installed = False
else:
    installed = True
    _propagator = tracecontext.TraceContextTextMapPropagator()

Headers = Mapping[str, Any] | RawJSON | None


def add_trace(headers: Headers) -> Headers:
    """Add traceparent and tracestate of the current span to the headers of a job,
    unless the caller has set them."""
    if not installed or isinstance(headers, RawJSON):
        return headers
    carrier: dict[str, Any] = {}
    _propagator.inject(carrier)
    return {**carrier, **(headers or {})} if carrier else headers


@contextlib.contextmanager
def traced_by(headers: Mapping[str, Any] | None) -> Iterator[None]:
    """Within the context, spans are children of the span that the headers name."""
    told = {key: (headers or {}).get(key) for key in ("traceparent", "tracestate")}
    carrier = {key: value for key, value in told.items() if isinstance(value, str)}
    if not installed or not carrier:
        yield
        return
    token = context.attach(_propagator.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)
