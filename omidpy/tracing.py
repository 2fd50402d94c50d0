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

A span that cannot be made is logged, and what it is about goes on: a commit that the oracle has
granted is granted, whatever becomes of its span.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError

try:
    from opentelemetry import trace
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
except ImportError as error:
    raise ConfigError(
        f"opentelemetry-api is not installed; run `{install_hint('otel')}`"
    ) from error

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

    from omidpy.manager import TransactionManager
    from omidpy.tx.session import Session

SCOPE: Final = "omidpy"

logger = logging.getLogger(__name__)


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


class _Harmless:
    """A block whose span fails alone."""

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make = make
        self._made: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        try:
            made = self._make()
            made.__enter__()
        except Exception:
            logger.exception("a span cannot be begun")
        else:
            self._made = made

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._made is None:
            return
        try:
            self._made.__exit__(exc_type, exc, traceback)
        except Exception as failure:
            if failure is not exc:
                logger.exception("a span cannot be ended")


class _Spans:
    """Makes spans of OpenTelemetry, as `Tracing` asks for them."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[None]:
        """Return a span that is current in its block."""
        return _Harmless(
            lambda: self._tracer.start_as_current_span(
                f"omidpy.{name}", kind=SpanKind.CLIENT, attributes=_attributes(attributes)
            )
        )

    def apart(self, name: str, **attributes: Any) -> AbstractContextManager[None]:
        """Return a span that is not."""
        return _Harmless(lambda: self._apart(name, attributes))

    @contextmanager
    def _apart(self, name: str, attributes: dict[str, Any]) -> Iterator[Span]:
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

    def following(
        self, name: str, before: Collection[object], **attributes: Any
    ) -> AbstractContextManager[None]:
        """Return a span inside of the first of others, and linked with each."""
        return _Harmless(lambda: self._following(name, before, attributes))

    def _following(
        self, name: str, before: Collection[object], attributes: dict[str, Any]
    ) -> AbstractContextManager[Span]:
        known = [one for one in before if isinstance(one, SpanContext) and one.is_valid]
        around = None
        if known:
            around = trace.set_span_in_context(trace.NonRecordingSpan(known[0]))
        return self._tracer.start_as_current_span(
            f"omidpy.{name}",
            context=around,
            kind=SpanKind.CLIENT,
            attributes=_attributes(attributes),
            links=[Link(one) for one in known],
        )


def _attributes(values: dict[str, Any]) -> dict[str, Any]:
    """Return attributes by names of our own; what is not known is left out."""
    return {f"omidpy.{name}": value for name, value in values.items() if value is not None}
