"""What Spark's writer must know of the format: its modes, and how large a frame is.

Spark hands a data source of Python neither; `register` teaches its class of writers both, so that
what is wrong is said by the call itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from omidpy.base.telemetry.stages import described
from omidpy.errors import UsageError
from omidpy.spark.frames.options import FORMAT, RANGE
from omidpy.spark.frames.writes.sizes import estimated_rows
from omidpy.spark.frames.writes.writing import OVERWRITE

_MARK: Final = "_omidpy_frames"
_SAID: Final = "_omidpy_said"
"""What the writer was told before, as `omidpy.committers.spark.writing` notes it."""
_KNOWN: Final = frozenset({"estimatedrows", "rowspertransaction"})
"""With one of these options nobody need count."""
_RANGE: Final = frozenset(name.replace("_", "") for name in RANGE)


def teach(writer: Any) -> None:
    """Let a class of writers know the format; doing so twice is harmless.

    Args:
        writer: `pyspark.sql.DataFrameWriter`, which `omidpy.committers.spark` has taught to note
            what it is told.
    """
    if getattr(writer.save, _MARK, False):
        return
    original = writer.save
    writer.save = _saving(original)
    setattr(writer.save, _MARK, True)


def _saving(original: Callable[..., Any]) -> Callable[..., Any]:
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - Spark calls it so
        mode: str | None = None,
        *rest: Any,
        **options: Any,
    ) -> None:
        said = self.__dict__.get(_SAID, {})
        if (format or next(iter(said.get("format", ())), None)) == FORMAT:
            check(self, said, mode, options)
            with described(self._df.sparkSession, "omidpy: write a frame to a table"):
                original(self, path, format, mode, *rest, **options)
            return
        original(self, path, format, mode, *rest, **options)

    def check(self: Any, said: dict[str, Any], mode: str | None, options: dict[str, Any]) -> None:
        names = {str(one).lower().replace("_", "") for one in options}
        names |= set(said.get("options", ()))
        chosen = str(mode or next(iter(said.get("mode", ())), None) or "error")
        check_mode(chosen, has_range=bool(_RANGE & names))
        if not _KNOWN & names:
            rows = estimated_rows(self._df)
            if rows is not None:
                self.option("estimated_rows", str(rows))

    save.__name__, save.__doc__ = original.__name__, original.__doc__
    return save


def check_mode(mode: str, *, has_range: bool = False) -> None:
    """Refuse modes that no transaction could honour.

    Args:
        mode: The mode.
        has_range: Whether the rows are named that are to be replaced.

    Raises:
        UsageError: it says what to do instead.
    """
    if mode.lower() == "overwrite":
        if has_range:
            return
        raise UsageError(OVERWRITE)
    if mode.lower() != "append":
        raise UsageError(
            f"mode({mode!r}) asks whether there is a table, and format({FORMAT!r}) writes into one "
            "that is there: write .mode('append'), which puts rows over those of the same key"
        )
