"""Let Prometheus' own tool decide what a rule makes of the numbers that were really reported.

A `Stage` is a page of metrics, as a process served it, and how long Prometheus saw it.  A number
that counts grows from page to page by what lies between the two, and one that is not on a page any
more has ended, as that of a process that is gone.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

ROOT: Final = Path(__file__).parents[3]
RULES: Final = sorted((ROOT / "deploy" / "prometheus").glob("*.rules.yml"))

needs_promtool: Final = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)
GROWING: Final = ("counter", "histogram", "summary")


@dataclass(frozen=True)
class Stage:
    """What Prometheus saw, and for how long."""

    page: str
    minutes: float
    grows: bool = False
    """Whether what counts grew at each look as it did from the stage before, and not once."""


@dataclass(frozen=True)
class Case:
    """An alarm that is silent at the end of all stages but the last one, and rings then."""

    alarm: str
    stages: tuple[Stage, ...]
    job: str = "omidpy-oracle"
    step_s: int = 15


Key = tuple[str, bool]


def samples(page: str, job: str) -> dict[Key, float]:
    """Return the numbers of a page, by name and labels as Prometheus writes them."""
    found: dict[Key, float] = {}
    for family in text_string_to_metric_families(page):
        for one in family.samples:
            labels = {**one.labels, "job": job}
            text = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(labels.items()))
            found[f"{one.name}{{{text}}}", family.type in GROWING] = one.value
    return found


def _number(value: float) -> str:
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def series_of(case: Case) -> list[dict[str, str]]:
    """Return the series of all stages, one after another."""
    pages = [samples(stage.page, case.job) for stage in case.stages]
    counts = [max(1, round(stage.minutes * 60 / case.step_s)) for stage in case.stages]
    found = []
    for key in dict.fromkeys(key for page in pages for key in page):
        values = []
        last: float | None = None
        for stage, page, count in zip(case.stages, pages, counts, strict=True):
            if key not in page:
                values.append(f"{'stale' if last is not None else '_'} {'_ ' * (count - 1)}")
                last = None
                continue
            value = page[key]
            growth = value - last if stage.grows and key[1] and last is not None else 0.0
            values.append(
                f"{_number(value)}+{_number(growth)}x{count - 1}"
                if growth
                else f"{_number(value)}x{count - 1}"
                if abs(value) < 2**53 and not math.isinf(value)
                else " ".join([_number(value)] * count)
            )
            last = value + growth * (count - 1)
        found.append({"series": key[0], "values": " ".join(values)})
    return found


def rule_alone(alarm: str) -> str:
    """Return the file of rules with one rule of all, so that no time goes into the others."""
    (text,) = [one for one in texts() if f"- alert: {alarm}\n" in one]
    head, group, *rules = re.split(r"(?m)^(?= *- (?:alert|name):)", text)
    (rule,) = [one for one in rules if f"- alert: {alarm}\n" in one]
    return head + group + rule


def texts() -> list[str]:
    """Return what is in each file of rules."""
    return [path.read_text("utf-8") for path in RULES]


def check(case: Case, folder: Path) -> None:
    """Let promtool say whether the alarm is silent before the last stage, and rings at its end."""
    rules = folder / f"{case.alarm}.rules.yml"
    rules.write_text(rule_alone(case.alarm))
    firing = f'(count(ALERTS{{alertname="{case.alarm}",alertstate="firing"}}) > bool 0)'
    at_s = 0.0
    expected = []
    for number, stage in enumerate(case.stages):
        at_s += stage.minutes * 60
        is_last = number == len(case.stages) - 1
        expected.append(
            {
                "expr": f"{firing} or vector(0)",
                "eval_time": f"{int(at_s - case.step_s)}s",
                "exp_samples": [{"labels": "{}", "value": int(is_last)}],
            }
        )
    document = {
        "rule_files": [str(rules)],
        "evaluation_interval": f"{case.step_s}s",
        "tests": [
            {
                "interval": f"{case.step_s}s",
                "input_series": series_of(case),
                "promql_expr_test": expected,
            }
        ],
    }
    path = folder / f"{case.alarm}.json"  # YAML holds JSON
    path.write_text(json.dumps(document))
    done = run_promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def run_promtool(*words: str) -> subprocess.CompletedProcess[str]:
    """Run promtool; return what it says."""
    return subprocess.run(
        ["promtool", *words], capture_output=True, text=True, timeout=120, check=False
    )


def alarms() -> list[str]:
    """Return the names of all alarms."""
    return [
        line.split(":", 1)[1].strip()
        for text in texts()
        for line in text.splitlines()
        if line.strip().startswith("- alert:")
    ]
