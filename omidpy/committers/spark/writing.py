"""What `df.write` says that Spark refuses of a Python data source, put as its options.

    df.write.format("omidpy-parquet").partitionBy("year").save("s3://b/f")

Spark knows no columns to partition by of a data source in Python, and of its modes `append` and
`overwrite` alone; it says so in words that name no option, behind a page of Java.  A session that
has registered the format has a `DataFrameWriter` that knows better, for this format and no other:
columns become the option, the default mode is `conflict=fail`, and what cannot be done is refused
in one line, before anything runs.

Lacks Spark Connect, whose writer is another: there Spark's own words stand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from omidpy.base.telemetry.stages import described, told
from omidpy.committers.s3 import INLINE_TASK_BYTES
from omidpy.committers.spark.session import OF_HADOOP
from omidpy.errors import UsageError

_SAID: Final = "_omidpy_said"
"""Of a writer: what it was told, which only Java knows otherwise."""
_TAUGHT: Final = "_omidpy_taught"
_TASK_BYTES: Final = "inlinetaskbytes"
_log: Final = logging.getLogger(__name__)
_TO_FAIL: Final = frozenset({"error", "errorifexists", "default"})


def check_types(name: str, schema: StructType) -> None:
    """Refuse columns that Parquet cannot hold as others read it.

    Raises:
        UsageError: One is an interval, which it names.
    """
    for field in schema.fields:
        if (found := _interval(field.dataType)) is not None:
            raise UsageError(
                f"the column {field.name!r} is of type {found}, which {name} does not write; cast "
                f"it first, for one .withColumn({field.name!r}, col({field.name!r}).cast('string'))"
            )


def _interval(kind: DataType) -> str | None:
    """Return the name of an interval type that a type is, or has in it; None if there is none."""
    if "interval" in kind.typeName():
        return kind.simpleString()
    inner: Sequence[DataType] = ()
    if isinstance(kind, StructType):
        inner = [one.dataType for one in kind.fields]
    elif isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    return next((found for one in inner if (found := _interval(one)) is not None), None)


def teach(name: str, writer: Any) -> None:
    """Let a class of writers know a format; doing so twice is harmless.

    Args:
        name: The format.
        writer: `pyspark.sql.DataFrameWriter`.
    """
    if getattr(writer, _TAUGHT, False):
        return
    setattr(writer, _TAUGHT, True)
    for method in ("format", "mode", "partitionBy"):
        setattr(writer, method, _noting(method, getattr(writer, method)))
    writer.option = _noting_option(writer.option)
    writer.options = _noting_option(writer.options)
    writer.save = _saving(name, writer.save, writer.partitionBy)
    for method in ("saveAsTable", "insertInto"):
        setattr(writer, method, _refusing(name, method, getattr(writer, method)))


def _noting(method: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: Any, *given: Any, **named: Any) -> Any:
        self.__dict__.setdefault(_SAID, {})[method] = (*given, *named.values())
        return original(self, *given, **named)

    return _named(noted, original)


def _saving(
    name: str, original: Callable[..., Any], partition_by: Callable[..., Any]
) -> Callable[..., Any]:
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - Spark calls it so
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803 - see above
        **options: Any,
    ) -> None:
        said = self.__dict__.get(_SAID, {})
        if (format or _first(said, "format")) != name:
            original(self, path, format, mode, partitionBy, **options)
            return
        check_types(name, self._df.schema)
        self.options(**options)
        if columns := _columns(partitionBy, said):
            # Behind Java's back: it compares them with those of a table that has none.
            partition_by(self)
            self.option("partitionBy", ",".join(columns))
        most_bytes = _most_task_bytes(self._df)
        if most_bytes is not None and _TASK_BYTES not in said.get("options", ()):
            self.option("inlineTaskBytes", str(most_bytes))
        chosen = str(mode or _first(said, "mode") or "default").lower()
        if chosen == "ignore":
            raise UsageError(
                f"{name} has no mode 'ignore'; write .mode('append').option('conflict', 'fail'), "
                "which is an error where files are"
            )
        if chosen in _TO_FAIL:
            self.option("conflict", "fail")
            chosen = "append"
        spark = self._df.sparkSession
        with (
            described(spark, f"omidpy: publish a frame at {path}"),
            told(spark, _said_to_hadoop(spark)),
        ):
            original(self, path, name, chosen)

    return _named(save, original)


def _most_task_bytes(frame: Any) -> int | None:
    """Return how much each task may send the driver; None where that need not be less than usual.

    What all tasks of a job send together must be less than `spark.driver.maxResultSize`, or Spark
    fails the job when most of it is done.
    """
    try:
        context = frame.sparkSession.sparkContext
        jvm = context._jvm  # noqa: SLF001 - it is nowhere else
        text = context.getConf().get("spark.driver.maxResultSize", "1g")
        most_bytes = jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(text)
        # The plan alone is made: nothing of it runs.
        plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - see above
        tasks = plan.outputPartitioning().numPartitions()
    except Exception as error:  # noqa: BLE001 - whatever another Spark lacks, the write is as before
        _log.debug("nobody knows how many tasks a write has: %s", error)
        return None
    if most_bytes <= 0 or tasks * INLINE_TASK_BYTES <= most_bytes // 2:
        return None
    found = int(most_bytes // 2 // tasks)
    _log.warning(
        "%d tasks may send the driver %d MiB each in small files, which is near to or above "
        "spark.driver.maxResultSize=%s: they send %d KiB at most and upload the rest, with 3 "
        "requests a file; raise that setting, or write .option('inlineTaskBytes', ...)",
        tasks,
        INLINE_TASK_BYTES // 2**20,
        text,
        found // 2**10,
    )
    return found


def _said_to_hadoop(spark: Any) -> dict[str, str | None]:
    """Return the settings of Hadoop's that mean something here, as Spark's own formats have them.

    Tasks are told by Spark only those whose names begin with `spark`.
    """
    try:
        found = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - it is nowhere else
        return {name: found.get(name) for name in OF_HADOOP}
    except Exception as error:  # noqa: BLE001 - whatever another Spark lacks, the write is as before
        _log.debug("nobody knows the settings of Hadoop: %s", error)
        return {}


def _noting_option(original: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: Any, *given: Any, **named: Any) -> Any:
        names = self.__dict__.setdefault(_SAID, {}).setdefault("options", set())
        for one in (*given[:1], *named):
            names.add(str(one).lower().replace("_", ""))
        return original(self, *given, **named)

    return _named(noted, original)


def _refusing(name: str, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def refused(self: Any, *given: Any, **named: Any) -> Any:
        said = self.__dict__.get(_SAID, {})
        asked = named.get("format", given[1] if method == "saveAsTable" and len(given) > 1 else "")
        if (asked or _first(said, "format")) == name:
            raise UsageError(
                f"{name} writes to a folder and knows no tables; write .save('s3://BUCKET/FOLDER') "
                f"instead of {method}"
            )
        return original(self, *given, **named)

    return _named(refused, original)


def _columns(given: str | list[str] | None, said: dict[str, Any]) -> list[str]:
    """Return the columns to partition by.

    Raises:
        UsageError: One has a comma in its name, which an option cannot say.
    """
    found = given if given is not None else list(said.get("partitionBy", ()))
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], list | tuple):
        found = list(found[0])
    columns = [found] if isinstance(found, str) else list(found)
    for one in columns:
        if "," in one:
            raise UsageError(
                f"the column {one!r} has a comma in its name; rename it to partition by it"
            )
    return columns


def _first(said: dict[str, Any], method: str) -> Any:
    return next(iter(said.get(method, ())), None)


def _named(made: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    made.__name__, made.__doc__ = original.__name__, original.__doc__
    return made
