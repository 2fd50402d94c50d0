"""HBase, itself and behind its Thrift gateways.

    native/       a client of HBase's own RPC, without knowledge of transactions
    direct/       a store over it: `hbase://...`, `hbase+rpc://...`
    known.py      what is remembered of tables, by every road
    settings.py   which settings of a table are worth reporting, by every road
    gssapi.py     the steps of Kerberos's mechanism, by every road

and for gateways:

    address.py    what `hbase+thrift2://...` says
    idl/          the part of the gateways' interface that is used here
    gateway.py    one connection: socket, TLS, transport, protocol, calls; sasl.py: Kerberos
    pool.py       connections shared by threads: liveness, failover, fork
    cluster.py    do all gateways of an address lead to the same HBase?
    attempts.py   which failed calls are made again, and when
    translate.py  what a gateway's error means to a user

Importing this package needs no extra; opening a gateway, or an address in ZooKeeper, needs
`omidpy[hbase]`.
"""
