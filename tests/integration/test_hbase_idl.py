"""Our own interface files against those that the gateways' jar carries.

Ours leave out what is not used.  What they do name must be what the gateway means by it: a field
number that is wrong would be skipped in silence, by us or by the gateway.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

import pytest
import thriftpy2
from thriftpy2.thrift import TException, TPayload

from omidpy.storage.hbase.idl import thrift1, thrift2
from tests.machines.hbase import HBase

WHOLE: Final = ("TTableDescriptor", "TColumnFamilyDescriptor", "TTableName")
"""Read, changed and written back: a field left out would be reset."""


@pytest.fixture(params=["thrift2", "thrift1"])
def pair(request: pytest.FixtureRequest, hbase: HBase) -> tuple[ModuleType, ModuleType]:
    """Give our interface and the gateway's."""
    if request.param == "thrift2":
        path, ours = hbase.idl_dir / "thrift2" / "hbase.thrift", thrift2
    else:
        path, ours = hbase.idl_dir / "thrift" / "Hbase.thrift", thrift1
    theirs = thriftpy2.load(str(path), module_name=f"gateway_{request.param}_thrift")
    return ours, theirs


def described(spec: Any) -> Any:
    """Return the type in a field's description, with structs and enums by their name."""
    if isinstance(spec, tuple | list):
        return tuple(described(part) for part in spec)
    return spec.__name__ if isinstance(spec, type) else spec


def fields(struct: Any) -> dict[int, Any]:
    """Return the fields of a struct: number -> (type, name, ..., is required)."""
    return {number: described(spec) for number, spec in struct.thrift_spec.items()}


def kinds(module: ModuleType, kind: type) -> dict[str, Any]:
    """Return the structs, exceptions or other classes of an interface by name."""
    return {
        name: found
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, kind) and found.__module__ != "builtins"
    }


def test_every_struct_has_the_gateways_fields(pair: tuple[ModuleType, ModuleType]) -> None:
    """Number, type, name and requiredness; what the gateway requires is not left out."""
    ours, theirs = pair
    structs = kinds(ours, TPayload)
    assert structs
    for name, struct in structs.items():
        mine, real = fields(struct), fields(getattr(theirs, name))
        assert mine.items() <= real.items(), name
        required = {number for number, spec in real.items() if spec[-1]}
        assert required <= mine.keys(), f"{name} lacks a required field"
        assert issubclass(struct, TException) == issubclass(getattr(theirs, name), TException)
        if name in WHOLE:
            assert mine == real, f"{name} is written back and must be whole"


def test_every_enum_has_the_gateways_values(pair: tuple[ModuleType, ModuleType]) -> None:
    """An enum is its numbers; a delete of the wrong kind removes history."""
    ours, theirs = pair
    enums = {
        name: found for name, found in vars(ours).items() if hasattr(found, "_VALUES_TO_NAMES")
    }
    assert "TThriftServerType" in enums
    for name, enum in enums.items():
        assert enum._VALUES_TO_NAMES == getattr(theirs, name)._VALUES_TO_NAMES, name


def test_every_call_has_the_gateways_arguments_and_answers(
    pair: tuple[ModuleType, ModuleType],
) -> None:
    """Arguments go by number as well; an exception that is not declared would be no exception."""
    ours, theirs = pair
    name = "THBaseService" if ours is thrift2 else "Hbase"
    mine, real = getattr(ours, name), getattr(theirs, name)
    assert mine.thrift_services
    for call in mine.thrift_services:
        for part in (f"{call}_args", f"{call}_result"):
            assert fields(getattr(mine, part)) == fields(getattr(real, part)), part


def test_no_optional_field_is_sent_unless_it_is_set() -> None:
    """The gateway's file has defaults, one of which deletes older versions too."""
    for name, struct in kinds(thrift2, TPayload).items():
        if name != "TPayload":
            assert all(default is None for _, default in struct.default_spec), name
