"""From the schema of a DataFrame to the shape of a table's columns, and back.

The columns of a frame are typed by its schema, and a codec is found for each type.  Lacks Spark:
types are Arrow's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from omidpy import codec as codecs
from omidpy.codec import BYTES, Codec
from omidpy.errors import UsageError
from omidpy.spark.frames.options import Words, has_all_versions, key_pairs, pairs
from omidpy.tx.frames.asked import DEFAULT_KEY
from omidpy.tx.frames.keys import Key, KeyPart
from omidpy.tx.frames.reading import schema_of, type_of
from omidpy.tx.frames.shape import COMMIT_TS, OP, Field, Shape, field_of, type_named

_CODECS: Final[Mapping[Any, Codec[Any]]] = {
    pa.int64(): codecs.INT64,
    pa.int32(): codecs.INT32,
    pa.int16(): codecs.INT16,
    pa.float64(): codecs.FLOAT64,
    pa.float32(): codecs.FLOAT32,
    pa.bool_(): codecs.BOOL,
    pa.string(): codecs.TEXT,
    pa.binary(): codecs.BYTES,
}


Kind: TypeAlias = "str | Codec[Any] | None"
"""A type, or None: that which the schema has."""


def shape_of(said: Words, schema: pa.Schema) -> Shape:
    """Return the shape of a frame that has the columns of a schema, by the words of options.

    Raises:
        UsageError: naming the column, nobody knows what it is in the table, or no codec has its
            type.
    """
    if said.shape is not None:
        return Shape.from_text(said.shape)
    named = {} if said.columns is None else pairs("columns", said.columns)
    return shape_of_frame(schema, key_pairs(said.key or DEFAULT_KEY), named, said.rest)


def shape_of_frame(
    schema: pa.Schema,
    parts: Mapping[str, Kind],
    named: Mapping[str, tuple[str | bytes, Kind]],
    rest: str | None,
) -> Shape:
    """Return the shape of a frame that has the columns of a schema.

    Args:
        schema: The frame.
        parts: The columns of the row key.
        named: Name in the frame -> column of the table.  One that is called as it is in the table,
            `family:qualifier`, need not be there.
        rest: The name of a map.

    Raises:
        UsageError: as `shape_of`.
    """
    types = {field.name: field.type for field in schema}
    if unknown := [name for name in named if name not in types]:
        raise UsageError(f"the frame has no column {', '.join(unknown)}, which columns= names")
    key = Key(tuple(KeyPart(name, _part(name, kind, types)) for name, kind in parts.items()))
    fields: list[Field] = []
    for name, found in types.items():
        if name in parts or name == OP:
            continue
        if name == COMMIT_TS:
            _check(name, found, pa.int64())
        elif name == rest:
            if not pa.types.is_map(found) or (found.key_type, found.item_type) != _MAP:
                raise UsageError(f"the column {name!r} must be map<string, binary>, not {found}")
        else:
            fields.append(_field(name, named, found))
    shape = Shape(key, tuple(fields), rest if rest in types else None, COMMIT_TS in types)
    shape.check()
    return shape


_MAP: Final = (pa.string(), pa.binary())


def own_schema(said: Words) -> pa.Schema:
    """Return the columns that options name with their types, where no schema was given.

    Raises:
        UsageError: they do not.
    """
    if said.shape is not None:
        return schema_of(pa, Shape.from_text(said.shape))
    named = {} if said.columns is None else pairs("columns", said.columns)
    parts = key_pairs(said.key or DEFAULT_KEY)
    untyped = [name for name, (_, kind) in named.items() if kind is None]
    if len(parts) > 1:
        untyped += [name for name, kind in parts.items() if kind is None]
    if untyped or not named:
        raise UsageError(
            "nobody knows the columns"
            + (f" ({', '.join(untyped)})" if untyped else "")
            + ": a table has no schema.  Say .schema('row binary, `cf:balance` bigint'), or name "
            "them with their types, .option('columns', 'balance=cf:balance bigint')"
        )
    columns = {name: (column, kind or "") for name, (column, kind) in named.items()}
    key = {name: kind or "binary" for name, kind in parts.items()}
    has_times = has_all_versions(said)
    return schema_of(pa, Shape.of(columns, key=key, rest=said.rest, commit_ts=has_times))


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of a schema exactly: Spark looks at the first one alone.

    Raises:
        UsageError: a value does not fit, or a column that must not be null has one.
    """
    arrays = []
    for field in schema:
        found = batch.column(field.name)
        if found.type != field.type:
            try:
                found = found.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise UsageError(
                    f"the column {field.name!r} is no {field.type}: {error}"
                ) from error
        if not field.nullable and found.null_count:
            raise UsageError(
                f"the column {field.name!r} is declared not null, and rows of the table lack it"
            )
        arrays.append(found)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _part(name: str, kind: Kind, types: Mapping[str, Any]) -> Codec[Any]:
    if kind is not None:
        codec = type_named(name, kind)
        if name in types:
            _check(name, types[name], type_of(pa, codec))
        return codec
    return _codec(name, types[name]) if name in types else BYTES


def _field(name: str, named: Mapping[str, tuple[str | bytes, Kind]], found: Any) -> Field:
    column, kind = named.get(name, (name if ":" in name else "", None))
    if not column:
        raise UsageError(
            f"nobody knows which column of the table {name!r} is; name it, as columns="
            f"{{'{name}': ('FAMILY:QUALIFIER', 'bigint')}} or .option('columns', "
            f"'{name}=FAMILY:QUALIFIER'), or call it so in the frame"
        )
    made = field_of(name, (column, _codec(name, found) if kind is None else kind))
    _check(name, found, type_of(pa, made.codec))
    return made


def _codec(name: str, found: Any) -> Codec[Any]:
    codec = _CODECS.get(found)
    if codec is None:
        raise UsageError(
            f"no codec has the type {found} of column {name!r}; cast it to bigint, double, string "
            "or binary, or name a codec of your own, as 'module:NAME'"
        )
    return codec


def _check(name: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise UsageError(
            f"the column {name!r} is {found} in the frame, and {expected} in the table; cast it"
        )
