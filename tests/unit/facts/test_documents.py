"""What is written as JSON can be read again, and what cannot be read is told as such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omidpy.base.timing.clock import ManualClock
from omidpy.committers.contents.manifests import decode_portion
from omidpy.committers.heads.head import decode as decode_head
from omidpy.committers.places import Folder
from omidpy.errors import CommitterError, CorruptCell, UsageError
from omidpy.facts.control import ControlTable, decode_document, encode_document
from omidpy.facts.watermarks import (
    HOLD_PREFIX,
    HOLDS_EVERYTHING,
    STAMP_PREFIX,
    Hold,
    Watermarks,
)
from omidpy.fate.step import decode_step
from omidpy.model import Timestamp
from omidpy.recipes.export_queue import ExportQueue
from omidpy.recipes.export_queue.entries.stored.codecs import CODECS
from omidpy.recipes.export_queue.entries.stored.layout import decode_content
from omidpy.recipes.export_queue.marks import decode_mark
from omidpy.storage.hbase import described
from omidpy.tx.parts.tokens import decode_part, decode_token
from tests.machines.clients import Client


def test_a_document_is_read_as_it_was_written() -> None:
    """The rule."""
    hold = Hold(50, 1_700_000_000_000, 1000, owner="host pid 1")
    assert decode_document(encode_document(hold), Hold, row=b"hold/1") == hold


@pytest.mark.parametrize("start_ts", [-1, 2**63, 1.5, True, "50", None])
def test_a_document_that_could_not_be_read_is_not_written(start_ts: object) -> None:
    """It would be malformed from then on, for everybody."""
    with pytest.raises(UsageError, match=r"could not be read again.*\$\.start_ts"):
        encode_document(Hold(start_ts, 1_700_000_000_000))  # type: ignore[arg-type]  # as above


HOSTILE = [
    b'{"unknown":"\xff"}',
    b'{"unknown":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b"[" * 100_000,
    b"{",
    b"\xff",
    b"",
]
"""A text that is no UTF-8, what is nested too deep, and what is no JSON."""


@pytest.mark.parametrize("raw", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda raw: decode_document(raw, Hold, row=b"hold/1"), CorruptCell),
        (lambda raw: decode_token(raw, store_id="s"), UsageError),
        (lambda raw: decode_part(raw, store_id="s", start_ts=Timestamp(50)), UsageError),
        (lambda raw: decode_content(_entry(raw or b"{")), CorruptCell),
        (lambda raw: decode_portion(Folder("b", "f/"), "j", raw), CorruptCell),
        (lambda raw: described._decoded("t", raw.replace(b"unknown", b"families")), CorruptCell),
        (lambda raw: decode_mark(raw.decode("latin-1"), where="here"), CorruptCell),
        (lambda raw: decode_head(raw, "s3://b/l"), CommitterError),
        (decode_step, CorruptCell),
    ],
    ids=["fact", "token", "part", "headers", "files", "described", "mark", "head", "step"],
)
def test_what_is_no_document_is_told_in_an_error_of_ours(
    read: Callable[[bytes], object], error: type[Exception], raw: bytes
) -> None:
    """Whatever library finds it out: a `UnicodeDecodeError` ended every compaction of a store."""
    with pytest.raises(error):
        read(raw)


def test_a_text_in_a_fact_that_is_no_utf8_makes_it_malformed() -> None:
    """One bit that turns is enough for that, and every compaction of the store ended with it."""
    client = Client()
    control = ControlTable(client.store)
    raw = encode_document(Hold(50, 1, owner="host")).replace(b"host", b"\xe8ost")
    control.write(HOLD_PREFIX + b"one", raw)
    marks = Watermarks(control)
    assert marks.holds(marks.ages(ManualClock())) == [HOLDS_EVERYTHING]
    assert list(marks.malformed) == [HOLD_PREFIX + b"one"]


def _entry(headers: bytes) -> bytes:
    """Return the cell of an entry whose headers are these."""
    return b"".join((b"\x01", (1).to_bytes(4), b"k", len(headers).to_bytes(4), headers, b"v"))


def test_a_row_whose_name_is_no_text_is_malformed() -> None:
    """Who lists such rows shows their names: one of them ended the list, and every compaction."""
    client = Client()
    control = ControlTable(client.store)
    control.write(STAMP_PREFIX + b"\xff", encode_document({"stamps": []}))
    control.write(STAMP_PREFIX + b"run", encode_document({"stamps": []}))
    marks = Watermarks(control)
    assert list(marks.stamps()) == ["run"]
    assert list(marks.malformed) == [STAMP_PREFIX + b"\xff"]


NESTED: list[Any] = []
for _ in range(100_000):
    NESTED = [NESTED]


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_a_value_that_is_nested_too_deep_is_refused_by_name(name: str) -> None:
    """In words, and when it is added; what is there already is an obstacle of its own."""
    with pytest.raises(UsageError, match=f"(?i)cannot be written as {name}"):
        CODECS[name].encode(NESTED)
    with pytest.raises(CorruptCell, match=f"(?i)no {name}"):
        CODECS[name].decode(b"\x91" * 100_000 if name == "msgpack" else b"[" * 100_000)


def test_a_queue_that_could_not_be_read_is_not_made() -> None:
    """Its record would forbid to make another one of the id, until somebody repairs it."""
    client = Client()
    with pytest.raises(UsageError, match="max_entries"):
        ExportQueue.create(client.tm, "bills", max_entries=2**70)
    assert ExportQueue.create(client.tm, "bills", max_entries=2**40).exists()
