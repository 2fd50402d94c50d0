"""HBase behind its Thrift gateways.

    address.py    what `hbase+thrift2://...` says
    idl/          the part of the gateways' interface that is used here
    gateway.py    one connection: socket, TLS, SASL, transport, protocol, calls
    pool.py       connections shared by threads: liveness, retries, failover, fork
    translate.py  what a gateway's error means to a user

Importing this package needs no extra; opening a gateway needs `omidpy[hbase]`.
"""
