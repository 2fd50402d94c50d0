"""The address of an oracle is read as written, or refused with an example."""

from __future__ import annotations

import pytest

from omidpy.errors import ConfigError
from omidpy.oracle.tcp import TcpOracle, parse_address


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("127.0.0.1:9", ("127.0.0.1", 9)),
        ("tso.example.org", ("tso.example.org", 24758)),
        ("[::1]:24759", ("::1", 24759)),
        ("[fe80::2]", ("fe80::2", 24758)),
    ],
)
def test_addresses_are_read_with_or_without_a_port(address: str, place: tuple[str, int]) -> None:
    """Omid's default port stands in for a missing one."""
    assert parse_address(address) == place


@pytest.mark.parametrize(
    "address",
    ["", ":", ":24758", "host:", "host:x", "host:0", "host:65536", "host:-1", "::1", "[]:1", "h:²"],
)
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    """A typing error is found when the client is made, not when the first begin times out."""
    with pytest.raises(ConfigError, match=r"no address of an oracle; expected host:port"):
        TcpOracle(address)


def test_an_oracle_needs_exactly_one_way_to_be_found() -> None:
    """To prefer one of two silently would be a guess."""
    with pytest.raises(ConfigError, match="either an address or resolve="):
        TcpOracle()
    with pytest.raises(ConfigError, match="not both"):
        TcpOracle("127.0.0.1:9", resolve=lambda: ("127.0.0.1", 9))
