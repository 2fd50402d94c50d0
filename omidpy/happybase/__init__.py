"""happybase's connections, tables and batches, on HBase itself and without a gateway.

    import omidpy.happybase as happybase

    connection = happybase.Connection("zk1,zk2")
    connection.table("t").put(b"row", {b"cf:q": b"value"})

For plain tables: nothing here is a transaction, and a table that transactions write is refused to
whoever would write it.  `omidpy.connect` takes such a connection, and then both use one address.

Source: the names, arguments and results are those of happybase 1.3, where a difference is not told.
"""

from omidpy.happybase.batch import Batch
from omidpy.happybase.connection import Connection
from omidpy.happybase.pool import ConnectionPool, NoConnectionsAvailable
from omidpy.happybase.table import Table

__all__ = ["Batch", "Connection", "ConnectionPool", "NoConnectionsAvailable", "Table"]
