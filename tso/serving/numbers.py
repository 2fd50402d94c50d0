"""Which numbers does an oracle report, and what does each of them mean?

Said once: the page that Prometheus reads takes its help from here, and so do the lists by which
dashboards and alarms are checked.  A counter and a distribution are there from the start, at 0, so
that the first event is an increase that a rule sees; a gauge appears when it is first reported,
since one of an instance that stands by would be a claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COUNTERS: Final[Mapping[str, str]] = {
    "tso.timestampAllocation": "start timestamps handed out",
    "tso.commits": "commits granted",
    "tso.aborts": "commits refused when they were decided",
    "tso.aborts.conflict": "of these, because another transaction had written the same",
    "tso.aborts.lowWatermark": "of these, because they began at or below the low watermark",
    "tso.aborts.fence": "of these, because a table was fenced since they began",
    "tso.aborts.tooLarge": "of these, because they had written more than fits",
    "tso.rates.refused": "commits refused since whose they were wrote more than its share",
    "tso.rates.deferred": "reads put off for the same reason",
    "tso.fences": "fences set",
    "tso.invalidations": "requests to forbid a commit",
    "tso.retries.from-table": "repeated commit requests answered from the commit table",
    "tso.holds.refused": "begins with a hold for which there was no room",
    "tso.flush.failures": "batches that the store did not take at once",
    "tso.connections.refused": "connections closed since there was no place for them",
}

DISTRIBUTIONS: Final[Mapping[str, str]] = {
    "tso.batch.answers": "answers in a batch that was flushed",
    "tso.queue.seconds": "how long the first answer of a batch stood until its flush began",
    "tso.flush.seconds": "how long the store took for a batch",
}

GAUGES: Final[Mapping[str, str]] = {
    "tso.answering": "1 while this instance leads and its store takes what it decides, else 0",
    "tso.epoch": "below which timestamp this instance found everything when it took over",
    "tso.connections": "clients connected",
    "tso.connectionLimit": "for how many clients there are places",
    "tso.queueLength": "answers that wait for a flush",
    "tso.maxTimestamp": "newest timestamp issued",
    "tso.lowWatermark": "a transaction that began at or below it cannot commit",
    "tso.transactionAge.seconds": "how old a transaction may be that commits, by the settings",
    "tso.mapAge.seconds": "how old one may be before the conflict map has forgotten too much",
    "tso.heldBackBy": "start timestamp of the transaction that the low watermark waits for; or 0",
    "tso.clock.rejectedLead.seconds": "how far ahead the clock is that is not believed; or 0",
}

MEANINGS: Final[Mapping[str, str]] = {**COUNTERS, **DISTRIBUTIONS, **GAUGES}
