"""The gateways' interfaces as Python classes, made once from our own `.thrift` files.

    thrift2   structs, enums and exceptions of `hbase2.thrift`; THBaseService its calls
    thrift1   the same of `hbase1.thrift`; Hbase its calls

They list only what is used here, written from the protocol's facts.  A field that a newer gateway
adds is skipped by the reader; one that we do not set is not sent.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any, Final

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses.gateways import Api

try:
    import thriftpy2
except ImportError as error:
    raise ConfigError(f"talking to HBase needs thriftpy2; run `{install_hint('hbase')}`") from error


def _loaded(name: str) -> Any:
    with as_file(files(__name__) / f"{name}.thrift") as path:
        # The module gets a name of its own, so that its values can be pickled to Spark's tasks.
        return thriftpy2.load(str(path), module_name=f"{__name__}.{name}_thrift")


thrift2: Final[Any] = _loaded("hbase2")
THBaseService: Final[Any] = thrift2.THBaseService
thrift1: Final[Any] = _loaded("hbase1")
Hbase: Final[Any] = thrift1.Hbase


def service(api: Api) -> Any:
    """Return the class that holds the calls of an interface."""
    return THBaseService if api == "thrift2" else Hbase
