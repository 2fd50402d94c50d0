"""HBase behind its Thrift gateways.

    address.py    what `hbase+thrift2://...` says
    idl/          the part of the gateways' interface that is used here
    gateway.py    one connection: socket, TLS, transport, protocol, calls; sasl.py: Kerberos
    pool.py       connections shared by threads: liveness, failover, fork
    cluster.py    do all gateways of an address lead to the same HBase?
    attempts.py   which failed calls are made again, and when
    translate.py  what a gateway's error means to a user

Importing this package needs no extra; opening a gateway needs `omidpy[hbase]`.
"""
