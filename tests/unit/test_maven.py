"""Is a Maven project built once, wholly, and again when it changes?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.machines import maven


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a project, and a `mvn` that notes its calls and makes one jar."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "pom.xml").write_text("<project/>")
    (folder / "src" / "Main.java").write_text("class Main {}")
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "mvn").write_text(
        f"#!/bin/sh\necho call >> {tmp_path}/calls\n"
        f"[ -e {tmp_path}/broken ] && echo no such artifact && exit 1\n"
        'for last; do :; done; mkdir "${last#-Dout=}/lib"; touch "${last#-Dout=}/lib/a.jar"\n'
    )
    (home / "bin" / "javac").write_text("#!/bin/sh\n")
    for tool in (home / "bin").iterdir():
        tool.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def calls(project: Path) -> int:
    """Count how often Maven was started."""
    noted = project.parent / "calls"
    return len(noted.read_text().splitlines()) if noted.exists() else 0


def test_a_project_is_built_once(project: Path) -> None:
    """A second run must not need the network, nor Maven's own start."""
    first = maven.build(project)
    assert [jar.name for jar in (first / "lib").iterdir()] == ["a.jar"]
    assert maven.build(project) == first
    assert calls(project) == 1


@pytest.mark.parametrize("changed", ["pom.xml", "src/Main.java", "src/deep/New.java"])
def test_a_changed_file_builds_again(project: Path, changed: str) -> None:
    """What the tests run is what the checkout says."""
    first = maven.build(project)
    (project / changed).parent.mkdir(exist_ok=True)
    (project / changed).write_text("another")
    assert maven.build(project) != first
    assert calls(project) == 2


def test_a_failed_build_leaves_nothing_that_looks_whole(project: Path) -> None:
    """Half of the jars would fail later, in a test that is about something else."""
    (project.parent / "broken").touch()
    with pytest.raises(maven.BuildFailed, match="no such artifact"):
        maven.build(project)
    assert [path.suffix for path in maven._cache().iterdir()] == [".lock"]
    assert calls(project) == maven.ATTEMPTS
    (project.parent / "broken").unlink()
    assert (maven.build(project) / "lib" / "a.jar").exists()


def test_a_missing_tool_is_named_with_what_to_install(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that needs HBase fails where there is no Java; it says how to help."""
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(project))
    with pytest.raises(maven.BuildFailed, match="`javac`: install a JDK 17 and Maven"):
        maven.build(project)
