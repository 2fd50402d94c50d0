"""`make changelog`: put the fragments of `docs/changes` into their chapter of `CHANGELOG.md`.

    python -m release.changelog [VERSION]

The version is that of `pyproject.toml` unless one is named.  Its chapter is the first one, or is
begun.  Each fragment becomes an item of its subject's section, what is new before what is mended,
and its file is removed; what is to be shorter is edited afterwards.  Nothing is committed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]

SECTIONS: Final[Mapping[str, str]] = {
    "transactions": "Transactions",
    "oracle": "Oracle",
    "compaction": "Compaction",
    "fate": "FATE: operations of several steps",
    "export-queue": "Export queues",
    "committers": "Committers",
    "hbase": "HBase",
    "cli": "Command line",
    "pages": "Documentation",
}
"""What the sections of a chapter are called, by the subject of a fragment, in their order."""

KINDS: Final = ("feature", "fix", "docs", "misc")
"""In the order in which they are told."""

_CHAPTER: Final = re.compile(r"^## (\S+)$", flags=re.MULTILINE)
_SECTION: Final = re.compile(r"^### (.+)$", flags=re.MULTILINE)


class ChangelogError(Exception):
    """The fragments, or the change log, are not as `docs/changes/README.md` says."""


class Fragment(NamedTuple):
    """One change that a user notices."""

    subject: str
    name: str
    kind: str
    text: str

    @property
    def item(self) -> str:
        """What it becomes in the change log."""
        return "- " + "\n  ".join(self.text.strip().splitlines())


def main(arguments: Sequence[str] | None = None) -> int:
    """Put the fragments into the change log; return an exit code."""
    parser = argparse.ArgumentParser(prog="release.changelog", description=__doc__)
    parser.add_argument("version", nargs="?", default=project_version(ROOT))
    options = parser.parse_args(arguments)
    try:
        count = gather(ROOT, options.version)
    except ChangelogError as error:
        print(f"changelog: {error}", file=sys.stderr)
        return 1
    print(f"changelog: {count} fragments are in the chapter {options.version} of CHANGELOG.md now")
    return 0


def project_version(root: Path) -> str:
    """Return the version that the project says it has."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def gather(root: Path, version: str) -> int:
    """Put all fragments into the chapter of a version, and remove them; return how many.

    Raises:
        ChangelogError: nothing was changed.
    """
    paths = fragment_paths(root)
    changelog = root / "CHANGELOG.md"
    text = with_fragments(changelog.read_text("utf-8"), version, [read(path) for path in paths])
    changelog.write_text(text, "utf-8")
    for path in paths:
        path.unlink()
    return len(paths)


def fragment_paths(root: Path) -> list[Path]:
    """Return the files of fragments."""
    folder = root / "docs" / "changes"
    return sorted(path for path in folder.glob("*.md") if path.name != "README.md")


def read(path: Path) -> Fragment:
    """Read a fragment.

    Raises:
        ChangelogError: its name is none of a fragment, or it is empty.
    """
    parts = path.name.split(".")
    if len(parts) != 4 or parts[0] not in SECTIONS or parts[2] not in KINDS or not parts[1]:
        raise ChangelogError(
            f"{path.name} is no name of a fragment: write SUBJECT.NAME.KIND.md, with one of "
            f"{', '.join(SECTIONS)} and one of {', '.join(KINDS)}"
        )
    if not (text := path.read_text("utf-8").strip()):
        raise ChangelogError(f"{path.name} is empty")
    return Fragment(parts[0], parts[1], parts[2], text)


def with_fragments(text: str, version: str, fragments: Sequence[Fragment]) -> str:
    """Return a change log with fragments in the chapter of a version.  Pure.

    Raises:
        ChangelogError: the chapter is there, and is not the first.
    """
    chapters = versions(text)
    if version not in chapters:
        begin = _CHAPTER.search(text)
        place = len(text.rstrip("\n")) + 2 if begin is None else begin.start()
        head = text[:place] if begin is not None else text.rstrip("\n") + "\n\n"
        text = f"{head}## {version}\n\n{text[place:]}"
    elif chapters[0] != version:
        raise ChangelogError(f"{version} has been released: newer is {chapters[0]}")
    before, body, after = _parted(text, version)
    sections = _sections(body)
    ordered = sorted(fragments, key=lambda one: (KINDS.index(one.kind), one.name))
    for fragment in ordered:
        sections.setdefault(SECTIONS[fragment.subject], []).append(fragment.item)
    known = [name for name in SECTIONS.values() if name in sections]
    others = [name for name in sections if name and name not in known]
    parts = [*sections.get("", []), *(_written(name, sections[name]) for name in (*known, *others))]
    return before + "\n\n".join(parts) + "\n" + (f"\n{after}" if after else "")


def versions(text: str) -> list[str]:
    """Return the versions that have a chapter, the newest first."""
    return _CHAPTER.findall(text)


def chapter(text: str, version: str) -> str:
    """Return what a change log says of a version, without its heading; empty if nothing."""
    return _parted(text, version)[1].strip() if version in versions(text) else ""


def _parted(text: str, version: str) -> tuple[str, str, str]:
    found = re.search(rf"^## {re.escape(version)}\n+", text, flags=re.MULTILINE)
    assert found is not None
    following = _CHAPTER.search(text, found.end())
    end = len(text) if following is None else following.start()
    return text[: found.end()], text[found.end() : end], text[end:]


def _sections(body: str) -> dict[str, list[str]]:
    """Return the parts of a chapter by the heading of their section; `""` is before the first."""
    pieces = _SECTION.split(body)
    found = {"": [pieces[0].strip()]} if pieces[0].strip() else {}
    for name, content in zip(pieces[1::2], pieces[2::2], strict=True):
        found[name] = [content.strip("\n")] if content.strip() else []
    return found


def _written(name: str, items: Sequence[str]) -> str:
    return f"### {name}\n\n" + "\n".join(items)


if __name__ == "__main__":
    sys.exit(main())
