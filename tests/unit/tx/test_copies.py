"""Nobody makes a second one of a transaction, a worker or a manager."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from tests.machines.clients import TABLE, Client


@pytest.mark.parametrize("make_another", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_there_is_once_is_not_copied(make_another: Callable[[object], object]) -> None:
    """I8: a copy committed, and the rollback of the original removed what it had written."""
    client = Client()
    tx = client.tm.begin()
    tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
    worker = client.tm.resume(tx.token())
    for one, remedy in (
        (tx, r"tm\.resume\(token\)"),
        (worker, "resume the token once more"),
        (client.tm, r"omidpy\.connect\(URL, TSO\)"),
        (tx.table(TABLE).batch(), r"call batch\(\) of a table"),
        (tx.savepoint(), r"call tx\.savepoint\(\) again"),
        (client.tm.changes(TABLE), r"tm\.changes\(since=offset\)"),
        (client.tm.hold(tx, for_s=9), r"tm\.hold\(start_ts, for_s=...\)"),
    ):
        with pytest.raises(TypeError, match=f"neither copied nor pickled: .*{remedy}"):
            make_another(one)
    with pytest.raises(TypeError, match=r"tm\.resume\(token\)"):
        pickle.dumps(tx.table(TABLE))  # as a closure on its way to Spark's executors has it
    tx.commit()
    assert client.read(b"r") == {b"cf:q": b"1"}
