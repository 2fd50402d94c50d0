"""What the console is told when it is started, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omidpy.console.people import Tokens
from omidpy.console.sources import Addresses
from omidpy.errors import ConfigError
from omidpy.reports.servers import parts_of

if TYPE_CHECKING:
    from tso.serving.tls import TlsSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of the console, checked when it starts."""

    addresses: Addresses
    host: str
    port: int
    """0: one that is free."""
    tls: TlsSettings | None = None
    tokens: Tokens | None = None
    journal: str | None = None
    """The file of who did what; None: nothing can be changed."""

    @property
    def may_operate(self) -> bool:
        """Whether something can be changed."""
        return self.journal is not None

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        from tso.config import is_loopback  # noqa: PLC0415 - application

        return is_loopback(self.host)


def settings_from_words(
    *,
    store: str,
    tso: str | None,
    listen: str,
    metrics: Sequence[str] = (),
    folders: Sequence[str] = (),
    allow_operations: bool = False,
    token_file: str | None = None,
    journal: str | None = None,
    tls: TlsSettings | None = None,
    insecure: bool = False,
) -> Settings:
    """Check what was asked.

    Raises:
        ConfigError: something does not fit, or would let others in.
    """
    from tso.config import watching_address  # noqa: PLC0415 - application

    for address in metrics:
        parts_of(address)
    if folders:
        from omidpy.committers.places import parse_folder  # noqa: PLC0415 - of an extra

        folders = [parse_folder(one).url for one in folders]
    place = watching_address(listen, name="--listen", has_tls=tls is not None, insecure=insecure)
    assert place is not None, "it has a default"
    if store == "memory:":
        raise ConfigError("--store memory: is empty in every new process; name a file or a cluster")
    has_names = token_file is not None or (tls is not None and tls.client_ca is not None)
    if allow_operations and not has_names:
        raise ConfigError(
            "--allow-operations asks who does what: give --token-file, or --tls-client-ca with "
            "--tls-cert"
        )
    if allow_operations and journal is None:
        raise ConfigError("--allow-operations keeps a record of who did what: name it by --journal")
    if not allow_operations and (token_file is not None or journal is not None):
        raise ConfigError("--token-file and --journal say nothing without --allow-operations")
    return Settings(
        Addresses(store, tso or "store:", tuple(metrics), tuple(folders)),
        *place,
        tls=tls,
        tokens=None if token_file is None else Tokens.read(token_file),
        journal=journal,
    )
