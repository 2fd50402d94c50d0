"""Gateways of one address lead to one HBase, as far as they can tell."""

from __future__ import annotations

from typing import Any

import pytest
from thriftpy2.thrift import TApplicationException
from thriftpy2.transport import TTransportException

from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses.gateways import parse_address
from omidpy.storage.hbase.idl import thrift2
from omidpy.storage.hbase.rpc.cluster import OneCluster

ONE, TWO, THREE = ("gw1", 9090), ("gw2", 9090), ("gw3", 9090)
TOO_OLD = TApplicationException(TApplicationException.UNKNOWN_METHOD, "Invalid method name")
DOWN = thrift2.TIOError(message="callTimeout=1, callDuration=2", canRetry=True)


class Gateway:
    """Answers what it is to answer, and counts how often it was asked."""

    def __init__(self, answer: str | Exception) -> None:
        self._answer = answer
        self.asked_count = 0

    def call(self, method: str, *_args: Any, **_options: Any) -> str:
        """Answer."""
        assert method == "getClusterId"
        self.asked_count += 1
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.fixture
def cluster() -> OneCluster:
    """Return what three gateways are held against."""
    return OneCluster(parse_address("hbase+thrift2://gw1:9090,gw2:9090,gw3:9090"))


def check(cluster: OneCluster, gateway: tuple[str, int], answer: str | Exception) -> int:
    """Connect to a gateway; return how often it was asked."""
    client = Gateway(answer)
    cluster.check(client, gateway)  # type: ignore[arg-type]  # no more is needed of it
    return client.asked_count


def test_two_clusters_are_told_with_their_gateways(cluster: OneCluster) -> None:
    """Each would get a part of every transaction."""
    assert check(cluster, ONE, "red") == 1
    assert check(cluster, TWO, "red") == 1
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"gw1:9090 and gw3:9090 .* red and blue: correct"):
            check(cluster, THREE, "blue")


def test_each_gateway_is_asked_once(cluster: OneCluster) -> None:
    """The first connection to it pays for all."""
    assert [check(cluster, one, "red") for one in (ONE, TWO, ONE, TWO)] == [1, 1, 0, 0]


def test_a_gateway_alone_is_not_asked() -> None:
    """There is nothing to hold it against."""
    alone = OneCluster(parse_address("hbase+thrift2://gw1:9090"))
    assert check(alone, ONE, "red") == 0


def test_a_gateway_that_is_too_old_to_tell_is_believed(cluster: OneCluster) -> None:
    """It serves as it did before anybody asked; the others are still compared."""
    assert [check(cluster, ONE, TOO_OLD), check(cluster, ONE, TOO_OLD)] == [1, 0]
    check(cluster, TWO, "red")
    with pytest.raises(ConfigError, match="gw2:9090 and gw3:9090"):
        check(cluster, THREE, "blue")


def test_a_gateway_whose_hbase_is_down_is_asked_again(cluster: OneCluster) -> None:
    """It told nothing, and will."""
    check(cluster, ONE, "red")
    assert check(cluster, TWO, DOWN) == 1
    with pytest.raises(ConfigError):
        check(cluster, TWO, "blue")


def test_a_connection_that_does_not_work_is_the_pools_to_leave(cluster: OneCluster) -> None:
    """It tries another gateway then."""
    with pytest.raises(TTransportException):
        check(cluster, ONE, TTransportException(message="read 0 bytes"))
