"""What is written as JSON can be read again, whatever a caller was given."""

from __future__ import annotations

import pytest

from omidpy.errors import UsageError
from omidpy.facts.control import decode_document, encode_document
from omidpy.facts.watermarks import Hold
from omidpy.recipes.export_queue import ExportQueue
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


def test_a_queue_that_could_not_be_read_is_not_made() -> None:
    """Its record would forbid to make another one of the id, until somebody repairs it."""
    client = Client()
    with pytest.raises(UsageError, match="max_entries"):
        ExportQueue.create(client.tm, "bills", max_entries=2**70)
    assert ExportQueue.create(client.tm, "bills", max_entries=2**40).exists()
