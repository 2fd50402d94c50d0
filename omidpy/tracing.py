"""Spans of OpenTelemetry for the transactions of a manager.

    import omidpy.tracing

    omidpy.tracing.instrument(tm)

Spans are made inside of what is current in the caller's context, so that a W3C `traceparent` that
his framework has read is continued.  Without this call nothing here is imported, and a transaction
looks once for each span whether there is anybody to make it.

    omidpy.begin         until the oracle has answered
    omidpy.read          a read of rows, or a scan until it ends
    omidpy.flush         cells on their way into the store, before the commit or for it
    omidpy.commit        all of a commit, as its caller sees it
    omidpy.decide        inside of it: the oracle's queue, its flush and the way there and back
    omidpy.post_commit   shadow cells, of one transaction or of several together

How long the oracle's queue alone was is in none of them: its messages are those of Omid, and have
no word for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from omidpy.errors import ConfigError

try:
    from opentelemetry import trace
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
except ImportError as error:
    raise ConfigError(
        "opentelemetry-api is not installed; it comes with the extra `otel`"
    ) from error

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

    from omidpy.manager import TransactionManager
    from omidpy.tx.session import Session

SCOPE: Final = "omidpy"


class OfAsyncio(Protocol):
    """A manager of asyncio, as far as it is looked at here."""

    @property
    def blocking(self) -> TransactionManager:
        """The manager that does its work."""
        ...


def instrument(
    manager: TransactionManager | OfAsyncio,
    tracer_provider: TracerProvider | None = None,
) -> None:
    """Let the transactions of a manager, blocking or of asyncio, make spans from now on.

    Args:
        manager: The manager.
        tracer_provider: Makes the spans; without it, the one that the program has set, which may be
            set later.
    """
    _session(manager).trace_by(_Spans(trace.get_tracer(SCOPE, tracer_provider=tracer_provider)))


def uninstrument(manager: TransactionManager | OfAsyncio) -> None:
    """Let the transactions of a manager make no spans any more; those that are open end."""
    _session(manager).trace_by(None)


def _session(manager: TransactionManager | OfAsyncio) -> Session:
    of_asyncio = getattr(manager, "blocking", None)
    blocking = cast("TransactionManager", manager if of_asyncio is None else of_asyncio)
    return blocking.session


class _Spans:
    """A `Tracing`."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def span(self, name: str, **attributes: Any) -> Iterator[Span]:
        """Return a span that is current in its block."""
        named = _attributes(attributes)
        with self._tracer.start_as_current_span(
            f"omidpy.{name}", kind=SpanKind.CLIENT, attributes=named
        ) as made:
            yield made

    @contextmanager
    def apart(self, name: str, **attributes: Any) -> Iterator[Span]:
        """Return a span that is not."""
        made = self._tracer.start_span(
            f"omidpy.{name}", kind=SpanKind.CLIENT, attributes=_attributes(attributes)
        )
        try:
            yield made
        except Exception as failure:
            made.record_exception(failure)
            made.set_status(Status(StatusCode.ERROR, f"{type(failure).__name__}: {failure}"))
            raise
        finally:
            made.end()

    def here(self) -> SpanContext:
        """Return what is current."""
        return trace.get_current_span().get_span_context()

    @contextmanager
    def following(self, name: str, before: Collection[object], **attributes: Any) -> Iterator[Span]:
        """Return a span inside of the first of others, and linked with each."""
        known = [one for one in before if isinstance(one, SpanContext) and one.is_valid]
        around = None
        if known:
            around = trace.set_span_in_context(trace.NonRecordingSpan(known[0]))
        with self._tracer.start_as_current_span(
            f"omidpy.{name}",
            context=around,
            kind=SpanKind.CLIENT,
            attributes=_attributes(attributes),
            links=[Link(one) for one in known],
        ) as made:
            yield made


def _attributes(values: dict[str, Any]) -> dict[str, Any]:
    """Return attributes by names of our own; what is not known is left out."""
    return {f"omidpy.{name}": value for name, value in values.items() if value is not None}
