"""`omidpy verify`: is what many clients see on this very store snapshot isolation?

Exit codes: 0 clean, 1 anomalies (they are printed) or the run failed, 2 usage or configuration.
"""

from __future__ import annotations

import random
from typing import Annotated, Any, Final

import msgspec
import typer

from omidpy.base.words.durations import seconds_in
from omidpy.cli.common import AsJson, StoreUrl, TsoAddress, print_facts, print_json, say
from omidpy.testing.verification import Judgement, Plan
from omidpy.testing.verification import verify as run

EXIT_ANOMALIES: Final = 1


def verify(
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="How long to work; a bare number is seconds.")
    ] = "30s",
    clients: Annotated[int, typer.Option(metavar="N", help="Client processes.")] = 4,
    kill: Annotated[
        str,
        typer.Option(
            metavar="clients,oracle",
            help="Kill these at random; the oracle only where --tso is left out.",
        ),
    ] = "",
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Of every choice; drawn if left out.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the tables behind.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run client processes on tables of their own, and check what they saw for anomalies.

    Without --tso a tso-server is started for the time of the run.

    The tables are called omidpy_verify_... and go at the end; no other is touched.
    """
    plan = Plan(
        store=store,
        tso=tso,
        duration_s=duration_s(duration),
        client_count=clients,
        kill=frozenset(filter(None, (victim.strip() for victim in kill.split(",")))),
        seed=random.randrange(2**32) if seed is None else seed,
        keep=keep,
    )
    judgement = run(plan, note=lambda line: say(line, err=True))
    if as_json:
        print_json(document(judgement))
    else:
        show(judgement)
    if not judgement.is_clean:
        raise typer.Exit(EXIT_ANOMALIES)


def duration_s(text: str) -> float:
    """Return the seconds in `30s`, or in `30`.

    Raises:
        UsageError: naming the text.
    """
    is_bare = text.replace(".", "", 1).isdecimal()
    return seconds_in(f"{text}s" if is_bare else text, name="--duration")


def document(judgement: Judgement) -> dict[str, Any]:
    """Return a judgement as JSON values."""
    return {"clean": judgement.is_clean, **msgspec.to_builtins(judgement)}


def show(judgement: Judgement) -> None:
    """Print a judgement for a person."""
    done = judgement.overlap
    for anomaly in judgement.anomalies:
        say(f"ANOMALY {anomaly.name}: {anomaly.explanation}")
        for witness in anomaly.witnesses:
            say(f"    {witness}")
    for problem in judgement.problems:
        say(f"PROBLEM {problem}")
    print_facts(
        {
            "transactions": f"{done.transactions} in {judgement.seconds:.0f} s",
            "committed": done.committed,
            "aborted": f"{done.aborted}, {done.conflicts} of them by a conflict",
            "unknown": done.unknown,
            "concurrent pairs": done.concurrent_pairs,
            "killed": f"{judgement.clients_killed} clients, {judgement.oracle_killed} oracles",
            "anomalies": len(judgement.anomalies) or "none",
            "seed": judgement.seed,
        }
    )
    if judgement.kept_tables:
        say(f"kept {', '.join(judgement.kept_tables)}")
