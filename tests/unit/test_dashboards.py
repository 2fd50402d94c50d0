"""Dashboards and rules ask for numbers that are reported, and are those of their description."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from tests.machines.watching.names import reported_names
from tests.machines.watching.promtool import needs_promtool, run_promtool, texts

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "grafana"
NAME: Final = re.compile(r"\b(?:tso|omidpy)_[a-z_]+")


@pytest.fixture(scope="module")
def described() -> ModuleType:
    """Give the description of all dashboards."""
    spec = importlib.util.spec_from_file_location("dashboards", FOLDER / "dashboards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expressions(document: dict[str, Any]) -> list[str]:
    """Return everything that a dashboard asks for."""
    return [target["expr"] for panel in document["panels"] for target in panel["targets"]]


def shipped() -> dict[str, dict[str, Any]]:
    """Return the dashboards as they are shipped."""
    return {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def test_what_is_shipped_is_what_is_described(described: ModuleType) -> None:
    """Else: `python deploy/grafana/dashboards.py`."""
    files: dict[Path, str] = described.files()
    assert {path.name for path in files} == shipped().keys()
    for path, text in files.items():
        assert path.read_text() == text, f"{path.name} is old: python deploy/grafana/dashboards.py"


def test_dashboards_and_rules_ask_for_what_is_reported() -> None:
    """A name that was changed in the code alone would be a panel without a curve."""
    real = reported_names()
    asked = {name for document in shipped().values() for name in expressions(document)}
    asked |= {
        line
        for text in texts()
        for line in text.splitlines()
        if "alert:" not in line and "name:" not in line
    }
    named = {name for text in asked for name in NAME.findall(text)}
    assert named - real == set()


def test_every_number_is_on_a_dashboard() -> None:
    """One that nobody looks at need not be reported."""
    named = {
        name
        for document in shipped().values()
        for text in expressions(document)
        for name in NAME.findall(text)
    }
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in reported_names()}
    assert bare - {re.sub(r"_(bucket|sum|count)$", "", name) for name in named} == set()


def test_panels_lie_beside_each_other() -> None:
    """None over another, and none outside; each has a number of its own."""
    for name, document in shipped().items():
        taken: set[tuple[int, int]] = set()
        for panel in document["panels"]:
            at = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            assert at["x"] + at["w"] <= 24, name
            assert not cells & taken, (name, panel["title"])
            taken |= cells
        numbers = [panel["id"] for panel in document["panels"]]
        assert len(numbers) == len(set(numbers))


@needs_promtool
def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    """As a rule, with an interval in the place of Grafana's word for one."""
    rules = [
        {"record": f"dashboard:{number}", "expr": text.replace("$__rate_interval", "1m")}
        for number, text in enumerate(
            text for document in shipped().values() for text in expressions(document)
        )
    ]
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    done = run_promtool("check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
