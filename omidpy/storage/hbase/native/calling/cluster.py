"""Do all places that tell where HBase's parts are belong to the same HBase?

Whichever place answers is believed.  Two HBases in one address, or one that was made anew behind
it, would each get a part of every transaction, and it would not be noticed until data is missed.
So whoever tells where the catalogue is, or the master, tells of which HBase, too, and it is the one
that the first has told.

Source: the rule is that of gateways (`rpc/cluster.py`).
"""

from __future__ import annotations

from omidpy.errors import ConfigError


class OneCluster:
    """The HBase of one client, as far as it was told.  Safe to share among threads."""

    def __init__(self, url: str) -> None:
        """Be told of none yet."""
        self._url = url
        self._first: dict[None, tuple[str, str]] = {}
        """Its id and who told it, once known: an entry is made in one step."""

    def check(self, cluster_id: str, place: str) -> None:
        """Hold an id against that of the first.

        Args:
            cluster_id: What was told; empty is no id, and believed.
            place: Who told it.

        Raises:
            ConfigError: it is another one.
        """
        if not cluster_id:
            return
        known, first = self._first.setdefault(None, (cluster_id, place))
        if known == cluster_id:
            return
        if first == place:
            raise ConfigError(
                f"{place} told this client of the HBase cluster {known} before, and tells now of "
                f"{cluster_id}: an HBase was made anew behind {self._url}, or its servers lead to "
                "two HBase clusters; correct the address, or open the store again to use the new "
                "one"
            )
        raise ConfigError(
            f"{first} and {place} lead to two HBase clusters, {known} and {cluster_id}: correct "
            f"{self._url}, which may name servers of one alone"
        )
