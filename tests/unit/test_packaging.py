"""The project as a fresh clone: metadata, commands, licence, and nothing of one machine."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any, Final

import pytest

from omidpy.cli import main
from tso.cli import main as serve

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def tracked_files() -> list[Path]:
    """Return what git tracks; where there is no git, what a source distribution holds."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = listed.stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def tracked_texts() -> dict[str, str]:
    """Return the text of every tracked text file by its name."""
    texts = {}
    for path in tracked_files():
        try:
            texts[str(path.relative_to(ROOT))] = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
    return texts


def test_installed_version_is_the_projects() -> None:
    """An editable install that went stale would test other metadata than is shipped."""
    assert version("omidpy") == PROJECT["project"]["version"]


def test_the_command_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The first thing that a report of a defect needs."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"omidpy {PROJECT['project']['version']}"
    assert {"python", "engine", "sqlite", "thriftpy2", "pyspark"} <= {
        line.partition(" ")[0] for line in lines
    }


def test_the_server_says_the_same_versions(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever runs both learns at a glance whether they are of one installation."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    ours = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        serve(["--version"])
    assert not ended.value.code
    assert capsys.readouterr().out == ours


@pytest.mark.parametrize(
    ("script", "target"), [("omidpy", "omidpy.cli:main"), ("tso-server", "tso.cli:main")]
)
def test_scripts_are_installed(script: str, target: str) -> None:
    """The two commands that the documentation names exist after an install."""
    (found,) = entry_points(group="console_scripts", name=script)
    assert found.value == target
    assert callable(found.load())


def test_extras_and_groups_are_those_that_something_uses() -> None:
    """Documentation and errors name extras; a renamed one would send a user nowhere."""
    extras = PROJECT["project"]["optional-dependencies"]
    sinks = {"parquet", "kafka", "postgresql"}
    kinds = {"hbase", "spark", "zk", "kerberos", *sinks, "s3", "delta", "console", "fast", "otel"}
    kinds |= {"demo", "sasl"}
    assert set(extras) == kinds
    groups = {"test", "bench", "queryserver", "dev", "docs", "release"}
    assert set(PROJECT["dependency-groups"]) == groups


def test_a_hint_names_an_extra_that_is_there() -> None:
    """It is shown to somebody who lacks something, and would then find that out twice."""
    extras = PROJECT["project"]["optional-dependencies"]
    found = {
        extra
        for name, text in tracked_texts().items()
        if name.endswith(".py") and not name.startswith("tests/")
        for words in re.findall(r"install_hint\(([^*)]+)\)", text)
        for extra in re.findall(r"[\"'](\w+)[\"']", words)
    }
    assert {"hbase", "zk", "spark", "s3", "demo"} <= found <= set(extras)


def test_nobody_is_told_to_install_what_is_on_no_index() -> None:
    """`install_hint` knows where this omidpy came from, and a page cannot."""
    told = re.compile(r"pip install [^\n]*omidpy\[")
    allowed = {"docs/decisions/0069-packages-without-an-index.md"}
    found = [
        name
        for name, text in tracked_texts().items()
        if told.search(text) and not name.startswith("tests/") and name not in allowed
    ]
    assert found == []


def test_the_page_of_extras_lists_those_that_are_there() -> None:
    """With what each brings."""
    page = (ROOT / "docs" / "guide" / "install.md").read_text("utf-8")
    rows = re.findall(r"^\| (`[a-z0-9`, ]+`) \|", page, flags=re.MULTILINE)
    shown = [extra for row in rows for extra in re.findall(r"`(\w+)`", row)]
    assert sorted(shown) == sorted(PROJECT["project"]["optional-dependencies"])


def test_every_ruff_exception_says_why() -> None:
    """All rules are on; a line that switches one off carries its reason beside it."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    section = text[text.index("[tool.ruff.lint]") : text.index("[tool.mypy]")]
    switched_off = re.findall(r'^    "[A-Z0-9]+",.*$', section, flags=re.MULTILINE)
    assert switched_off
    assert [line for line in switched_off if "#" not in line] == []


def test_continuous_integration_calls_make_test_and_nothing_else() -> None:
    """What runs there can then be run anywhere by the same two words."""
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    lines = script.read_text("utf-8").splitlines()
    assert lines[0].startswith("#!")
    commands = [line for line in lines[1:] if not line.startswith(("#", "set ", "cd "))]
    assert commands == ["make test"]


def test_the_summary_of_pytest_is_the_last_thing_make_test_prints() -> None:
    """Whoever reads the log of a run looks at its last line first."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipe = re.search(r"^test:.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)
    assert recipe is not None
    commands = recipe[1].splitlines()
    assert "pytest" in commands[-1]
    assert all(line.startswith("\t@") for line in commands)


def test_the_newest_python_is_tested_first_and_may_fail_the_whole() -> None:
    """Its summary is not the last line, so that nobody would see it fail."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipe = re.search(r"^test:.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)
    assert recipe is not None
    assert recipe[1].splitlines()[0] == "\t@sh .ci/test-newest"
    script = (ROOT / ".ci" / "test-newest").read_text("utf-8")
    paths = re.findall(r"tests/\S+", script)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_licence_is_the_whole_apache_licence() -> None:
    """A summary of a licence grants nothing."""
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert all(f"\n   {number}. " in text for number in range(1, 10))
    assert "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert (ROOT / "NOTICE").is_file()


def test_types_are_shipped() -> None:
    """Without the marker file a user's type checker ignores every annotation."""
    assert (ROOT / "omidpy" / "py.typed").is_file()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["omidpy"]


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    """Such a path works for its author alone."""
    paths = re.compile(r"(?<![A-Za-z0-9_.>/-])/(?:work|root|home|farm|Users)/")
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in tracked_texts().items()
        for number, line in enumerate(text.splitlines(), start=1)
        if paths.search(line)
    ]
    assert found == []


def test_no_tracked_file_names_a_package_registry() -> None:
    """Where packages come from is the business of the machine that installs them."""
    options = re.compile(
        r"--(?:extra-)?index-url|--find-links|PIP_(?:EXTRA_)?INDEX_URL|PIP_FIND_LINKS"
        r"|https?://[^\s/]*(?:pypi|registry|artifactory|nexus|proxy\.golang)"
    )
    here = str(Path(__file__).relative_to(ROOT))
    found = [
        name for name, text in tracked_texts().items() if name != here and options.search(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ([], "Java 17"),
        (["java"], "Java 17 or newer with its compiler"),
        (["java", "javac"], "Maven"),
    ],
)
def test_set_up_names_what_is_missing_in_one_line(
    tmp_path: Path, there: list[str], missing: str
) -> None:
    """Where nothing can be installed, one line says what to install, and nothing is half made."""
    bare = tmp_path / "bin"
    bare.mkdir()
    for tool in ("sh", "dirname", "sed", "head", "cat", "touch"):
        found = next(
            Path(folder) / tool for folder in ("/bin", "/usr/bin") if _exists(folder, tool)
        )
        (bare / tool).symlink_to(found)
    (bare / "id").write_text("#!/bin/sh\necho 1000\n")
    for tool in there:
        (bare / tool).write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    for tool in ("id", *there):
        (bare / tool).chmod(0o755)
    environment = {"PATH": str(bare)}
    result = subprocess.run(
        [str(bare / "sh"), str(ROOT / ".ci" / "setup"), "--java"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert missing in result.stderr


def _exists(folder: str, tool: str) -> bool:
    return os.access(Path(folder) / tool, os.X_OK)
