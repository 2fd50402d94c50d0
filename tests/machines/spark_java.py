"""A Java of Spark's for one session alone.

PySpark keeps the first Java of a process, and with it the environment that its tasks get: a later
session that needs another would have that of whichever file of tests came first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

END_S = 60.0


@contextmanager
def own_java() -> Iterator[None]:
    """Let whatever session is made inside start a Java, which ends with it."""
    end_java()
    try:
        yield
    finally:
        end_java()


def end_java() -> None:
    """End the Java of this process, if there is one; no session may be left."""
    import py4j.java_gateway
    import py4j.protocol
    from pyspark import SparkContext

    # A session puts its own reading of errors there, which asks its Java.
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value
    kept: Any = SparkContext
    if kept._gateway is None:
        return
    gateway, kept._gateway, kept._jvm = kept._gateway, None, None
    gateway.shutdown()
    gateway.proc.stdin.close()  # which it waits for
    gateway.proc.wait(END_S)
