"""Which column of a frame is which column of a table, and of what type?

    Shape.of({"balance": ("cf:balance", "bigint")}, key={"id": "string"})

A frame has a column for each part of the row key, one for each column of the table that is named,
and on request a map of all other columns, and the time of the newest commit of the row.

Types are codecs, or names of them: of Spark's SQL, of Arrow's, or of `omidpy.codec`.  A codec of
your own is named `module:NAME`, so that tasks on other machines find it.  Pure: neither a table nor
Arrow is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any, Final

from omidpy import codec as codecs
from omidpy.base.words.arguments import parse_column
from omidpy.codec import BYTES, INT64, Codec
from omidpy.errors import UsageError
from omidpy.tx.frames.asked import DEFAULT_KEY, Columns, KeyColumns
from omidpy.tx.frames.keys import Key, KeyPart

COMMIT_TS: Final = "_commit_ts"
"""The column with the commit timestamp of the newest cell of a row that was read."""
OP: Final = "_op"
"""The column of a frame to write that says what becomes of a row: `put`, also where it is null, or
`delete`."""
COUNTER: Final = "counter"
"""The type of a column whose values are added to what is there."""

_TYPES: Final[Mapping[str, Codec[Any]]] = {
    name: codec
    for codec, names in (
        (codecs.INT64, ("int64", "bigint", "long")),
        (codecs.INT32, ("int32", "int", "integer")),
        (codecs.INT16, ("int16", "smallint", "short")),
        (codecs.FLOAT64, ("float64", "double")),
        (codecs.FLOAT32, ("float32", "float", "real")),
        (codecs.BOOL, ("bool", "boolean")),
        (codecs.TEXT, ("text", "string", "utf8")),
        (codecs.JSON, ("json",)),
        (codecs.BYTES, ("bytes", "binary")),
    )
    for name in names
}


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a frame that is a column of the table."""

    name: str
    column: bytes
    """`family:qualifier`."""
    codec: Codec[Any]
    is_counter: bool = False


@dataclass(frozen=True)
class Shape:
    """The columns of a frame."""

    key: Key
    fields: tuple[Field, ...] = ()
    rest: str | None = None
    """The name of a map from `family:qualifier` to bytes, for columns that are not named."""
    has_commit_ts: bool = False

    @classmethod
    def of(
        cls,
        columns: Columns | None = None,
        *,
        key: KeyColumns = DEFAULT_KEY,
        rest: str | None = None,
        commit_ts: bool = False,
    ) -> Shape:
        """Return the shape that a description or a pipeline names.

        Args:
            columns: Name in the frame -> (`"family:qualifier"`, type); None is no column.
            key: The name of the row key, which is then bytes; or name -> type of its parts.
            rest: The name of the map column.
            commit_ts: Whether `_commit_ts` is a column.

        Raises:
            UsageError: a type or a column is none, or two have one name.
            TypeError: an argument has another form.
        """
        parts = {key: BYTES} if isinstance(key, str) else key
        if not isinstance(parts, Mapping):
            raise TypeError(f"key must be a name, or a dict of names and types, not {key!r:.80}")
        if columns is not None and not isinstance(columns, Mapping):
            raise TypeError(
                "columns must be a dict such as {'balance': ('cf:balance', 'bigint')}, not "
                f"{columns!r:.80}"
            )
        shape = cls(
            Key(tuple(KeyPart(name, type_named(name, kind)) for name, kind in parts.items())),
            tuple(field_of(name, spec) for name, spec in (columns or {}).items()),
            rest,
            commit_ts,
        )
        shape.check()
        return shape

    def check(self) -> None:
        """Refuse what cannot be a frame.

        Raises:
            UsageError: two columns have one name, or one is the table's twice, or the key is none.
        """
        self.key.check()
        seen: set[str] = set()
        for name in self.names:
            if not isinstance(name, str) or not name:
                raise TypeError(f"the name of a column must be str, not {name!r}")
            if name in seen:
                raise UsageError(f"two columns of the frame are named {name!r}; rename one")
            if name == OP or (name == COMMIT_TS and not self.has_commit_ts):
                raise UsageError(f"no column of the table can be named {name!r} in the frame")
            seen.add(name)
        columns: set[bytes] = set()
        for field in self.fields:
            if field.column in columns:
                raise UsageError(
                    f"two columns of the frame are the column {field.column!r}; leave one out"
                )
            columns.add(field.column)

    @cached_property
    def names(self) -> list[str]:
        """The columns, in the order of a frame that is read."""
        found = [part.name for part in self.key.parts]
        found += [field.name for field in self.fields]
        if self.rest is not None:
            found.append(self.rest)
        if self.has_commit_ts:
            found.append(COMMIT_TS)
        return found

    def families(self) -> set[bytes]:
        """Return the families that columns name."""
        return {parse_column(field.column)[0] for field in self.fields}

    def columns(self) -> list[bytes] | None:
        """Return the columns of the table to read; None is all."""
        if self.rest is not None or not self.fields:
            return None
        return [field.column for field in self.fields]

    # -- across processes --------------------------------------------------------------------------

    def text(self) -> str:
        """Return it as text, for another process.

        Raises:
            UsageError: a codec has no name by which another process would find it.
        """
        parts = [(part.name, _name_of(part.codec)) for part in self.key.parts]
        fields = [
            (
                field.name,
                field.column.decode("latin-1"),
                COUNTER if field.is_counter else _name_of(field.codec),
            )
            for field in self.fields
        ]
        return json.dumps([parts, fields, self.rest, self.has_commit_ts])

    @classmethod
    def from_text(cls, text: str) -> Shape:
        """Return what `text` was called of."""
        parts, fields, rest, has_commit_ts = json.loads(text)
        return cls.of(
            {name: (column.encode("latin-1"), kind) for name, column, kind in fields},
            key=dict(parts),
            rest=rest,
            commit_ts=has_commit_ts,
        )

    def only(self, names: Sequence[str]) -> Shape:
        """Return it without those of the table's columns that are not among some names."""
        return replace(self, fields=tuple(one for one in self.fields if one.name in names))


def type_named(column: str, kind: object) -> Codec[Any]:
    """Return the codec of a type: a codec, or the name of one.

    Raises:
        UsageError: naming `column`, there is none.
    """
    if isinstance(kind, Codec):
        return kind
    if not isinstance(kind, str):
        raise TypeError(f"the type of column {column!r} must be a name or a codec, not {kind!r}")
    found = _TYPES.get(kind.strip().lower())
    if found is not None:
        return found
    module, colon, name = kind.partition(":")
    if not colon:
        raise UsageError(
            f"no codec has the type {kind!r} of column {column!r}; there are "
            f"{', '.join(sorted(_TYPES))}, those of omidpy.codec, and your own, as 'module:NAME'"
        )
    try:
        made = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"the codec {kind!r} of column {column!r} is not there: {error}"
        ) from error
    if not isinstance(made, Codec):
        raise UsageError(
            f"{kind!r} of column {column!r} is no omidpy.codec.Codec, but {made!r:.80}"
        )
    _named[made] = kind
    return made


_named: Final[dict[Codec[Any], str]] = {}
"""Codecs of others, by whose names they were found."""


def _name_of(codec: Codec[Any]) -> str:
    known = _TYPES.get(codec.name.lower())
    if known is codec:
        return codec.name
    if codec in _named:
        return _named[codec]
    raise UsageError(
        f"tasks elsewhere would not find the codec {codec.name}; name it as 'module:NAME', where "
        "they can import it"
    )


def field_of(name: str, spec: object) -> Field:
    """Return the column that a pair describes: `("family:qualifier", type)`.

    Raises:
        UsageError: the column or the type is none.
        TypeError: it is no pair.
    """
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise TypeError(
            f"columns[{name!r}] must be ('family:qualifier', type), such as ('cf:balance', "
            f"'bigint'), not {spec!r:.80}"
        )
    column, kind = spec
    encoded = column.encode() if isinstance(column, str) else column
    parse_column(encoded)
    if isinstance(kind, str) and kind.strip().lower() == COUNTER:
        return Field(name, encoded, INT64, is_counter=True)
    return Field(name, encoded, type_named(name, kind))
