"""Types by which something is decoded, in threads that come first at the same moment."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]

DECODERS: Final = ("decode", "Decoder", "convert")

PLAIN: Final = ("dict", "list", "dict[str, str]")
"""Of what these consist msgspec has nothing to find out."""

SCRIPT: Final = """
import sys, threading
from typing import Annotated
import msgspec
from omidpy.base.documents import prepared

sys.setswitchinterval(1e-6)
written = {f"f{number}": 1 for number in range(12)} | {"last": [{"a": 1}]}
raw = msgspec.json.encode(written)


def read(kind, together):
    together.wait()
    msgspec.json.decode(raw, type=prepared(kind))


for _ in range(400):
    natural = Annotated[int, msgspec.Meta(ge=0)]
    fields = [(f"f{number}", natural) for number in range(12)] + [("last", list[dict[str, int]])]
    kind = msgspec.defstruct("Kind", fields)
    together = threading.Barrier(4)
    threads = [threading.Thread(target=read, args=(kind, together)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_that_decode_a_type_first_do_no_harm() -> None:
    """A process with several threads was ended by a fault of memory, when they came at once."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, check=False, timeout=120)
    assert ended.returncode == 0


def test_a_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    """Which was preparing a type when it forked, and is not there."""
    script = """
import os, threading
import msgspec
from omidpy.base import documents

inside, over = threading.Event(), threading.Event()


def prepare():
    with documents._preparing:
        inside.set()
        over.wait(0.2)


thread = threading.Thread(target=prepare)
thread.start()
inside.wait()
if (pid := os.fork()) == 0:
    documents.prepared(msgspec.defstruct("Kind", [("field", int)]))
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
thread.join()
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False, timeout=60)
    assert ended.returncode == 0


def decoding_calls(tree: ast.AST) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Yield the calls of msgspec that decode or convert by a type, with that type."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name = ast.unparse(node.func)
        if not name.startswith("msgspec.") or node.func.attr not in DECODERS:
            continue
        named = [one.value for one in node.keywords if one.arg == "type"]
        given = node.args[:1] if node.func.attr == "Decoder" else node.args[1:2]
        for kind in named + given:
            yield node, kind


@pytest.mark.parametrize("package", ["omidpy", "tso", "compactor"])
def test_all_types_are_prepared(package: str) -> None:
    """One that is not ends a process now and then, which no test would notice."""
    wrong = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for path in (ROOT / package).rglob("*.py")
        if path != ROOT / "omidpy/base/documents.py"
        for call, kind in decoding_calls(ast.parse(path.read_text()))
        if ast.unparse(kind) not in PLAIN and not ast.unparse(kind).startswith("prepared(")
    ]
    assert wrong == []
