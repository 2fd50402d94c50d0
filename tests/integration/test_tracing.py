"""Spans of transactions: which there are, inside of what, and that nobody pays for none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import omidpy
from omidpy.errors import WriteConflict

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import omidpy.tracing

TRACE: Final = 0x0AF7651916CD43DD8448EB211C80319C
PARENT: Final = 0xB7AD6B7169203331
HEADERS: Final = {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01"}


class Traced:
    """A manager whose spans are kept."""

    def __init__(self, url: str) -> None:
        self.kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))
        self.tm = omidpy.connect(url)
        self.tm.create_table("t", families=["cf"])
        omidpy.tracing.instrument(self.tm, self.provider)

    def spans(self) -> dict[str, ReadableSpan]:
        """Return the last span of each name, once nothing is under way any more."""
        self.tm.session.post_committer.drain()
        return {one.name: one for one in self.kept.get_finished_spans()}


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    """Give a manager over a file whose oracle writes no cells, so that there are flushes."""
    made = Traced(f"sqlite:///{tmp_path}/s.db")
    made.tm.session.writer = None
    yield made
    made.tm.close()


@pytest.fixture
def _caller() -> Iterator[None]:
    """Be inside of what a request's headers say, as a framework does it."""
    token = context.attach(TraceContextTextMapPropagator().extract(HEADERS))
    yield
    context.detach(token)


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    """Return what is said of a span."""
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int:
    """Return the id of the span around it."""
    assert span.parent is not None
    return int(span.parent.span_id)


def id_of(span: ReadableSpan) -> int:
    """Return its own id."""
    assert span.context is not None
    return int(span.context.span_id)


@pytest.mark.usefixtures("_caller")
def test_every_part_of_a_transaction_has_its_span(traced: Traced) -> None:
    """In the trace of the caller, and the inner ones inside of the commit."""
    with traced.tm.begin() as tx:
        table = tx.table("t")
        table.row(b"a")
        list(table.scan())
        table.put(b"a", {b"cf:q": b"1"})
    found = traced.spans()
    names = ("begin", "read", "flush", "commit", "decide", "post_commit")
    assert sorted(found) == sorted(f"omidpy.{name}" for name in names)
    assert {one.context.trace_id for one in found.values() if one.context} == {TRACE}
    commit = found["omidpy.commit"]
    for name in ("begin", "read", "commit"):
        assert parent_of(found[f"omidpy.{name}"]) == PARENT
    for name in ("flush", "decide", "post_commit"):
        assert parent_of(found[f"omidpy.{name}"]) == id_of(commit)
    assert attributes_of(commit) == {"omidpy.start_ts": tx.start_ts}
    assert attributes_of(found["omidpy.flush"])["omidpy.tables"] == ("t",)
    assert attributes_of(found["omidpy.decide"])["omidpy.cells"] == 1
    (link,) = found["omidpy.post_commit"].links
    assert link.context.span_id == id_of(commit)


def test_a_refusal_is_an_error_of_its_span(traced: Traced) -> None:
    """With its name; a scan that is left half-way is none."""
    with traced.tm.begin() as tx:
        tx.table("t").put(b"a", {b"cf:q": b"1"})
    first, second = traced.tm.begin(), traced.tm.begin()
    for one in (first, second):
        one.table("t").put(b"a", {b"cf:q": b"2"})
    next(iter(second.table("t").scan()))
    first.commit()
    with pytest.raises(WriteConflict):
        second.commit()
    found = traced.spans()
    status = found["omidpy.commit"].status
    assert status.description is not None
    assert "WriteConflict" in status.description
    assert found["omidpy.read"].status.is_unset


class Broken(SpanProcessor):
    """Fails whatever it is told of."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Fail for every other span."""
        if span.name in ("omidpy.begin", "omidpy.flush"):
            raise ValueError("it is broken")

    def on_end(self, span: Any) -> None:
        """Fail."""
        raise ValueError("it is broken")


def test_a_span_that_fails_takes_no_commit_with_it(
    traced: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    """What the oracle has granted is granted, and its caller is told so."""
    traced.provider.add_span_processor(Broken())
    with traced.tm.begin() as tx:
        tx.table("t").put(b"a", {b"cf:q": b"1"})
        list(tx.table("t").scan())
    assert tx.commit_ts is not None
    traced.tm.session.post_committer.drain()
    omidpy.tracing.uninstrument(traced.tm)
    with traced.tm.begin() as reader:
        assert reader.table("t").row(b"a")
    told = {one.getMessage() for one in caplog.records}
    assert {"a span cannot be begun", "a span cannot be ended"} <= told


def test_transactions_of_asyncio_have_theirs(traced: Traced, tmp_path: Path) -> None:
    """Inside of what is current in the task, though their work is done in threads."""
    import omidpy.aio

    async def main() -> int:
        tracer = traced.provider.get_tracer("caller")
        async with omidpy.aio.connect(f"sqlite:///{tmp_path}/other.db") as tm:
            await tm.create_table("t", families=["cf"])
            omidpy.tracing.instrument(tm, traced.provider)
            with tracer.start_as_current_span("request") as around:
                async with tm.begin() as tx:
                    await tx.table("t").put(b"a", {b"cf:q": b"1"})
                return around.get_span_context().span_id

    around = asyncio.run(main())
    found = traced.spans()
    assert parent_of(found["omidpy.begin"]) == around
    assert parent_of(found["omidpy.commit"]) == around


def test_who_is_not_traced_makes_none(traced: Traced) -> None:
    """And one that was, no more."""
    omidpy.tracing.uninstrument(traced.tm)
    with traced.tm.begin() as tx:
        tx.table("t").put(b"a", {b"cf:q": b"1"})
    assert traced.spans() == {}


def test_who_does_not_ask_imports_nothing() -> None:
    """A whole transaction, in a new process."""
    code = (
        "import sys, omidpy\n"
        "with omidpy.connect('memory:') as tm:\n"
        "    tm.create_table('t', families=['cf'])\n"
        "    with tm.begin() as tx:\n"
        "        tx.table('t').put(b'a', {b'cf:q': b'1'})\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "assert 'omidpy.tracing' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
