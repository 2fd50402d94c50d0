"""A client of HBase's own RPC: no gateway, no Java, and no knowledge of transactions.

    address.py      what `hbase://...` says
    values.py       servers, regions, reads and mutations, as values
    faults.py       how a call can fail, and what is certain about its outcome
    translate.py    what a failure means to a user
    wire/           frames and messages; no I/O
    cellblock.py    cells as they travel beside the messages; compiled where that is possible
    scan_messages.py  the messages of a scan
    security/       TLS, Kerberos and tokens
    connections/    sockets, how they are opened, and what answers at a wrong port
    calling/        where a row is, and calls that are made again
    client.py       get, put, delete, check-and-mutate of rows, wherever they are
    scanning.py     one page of a scan
    admin.py        tables and regions
    inspection.py   can every server be reached from here?

Importing it needs no extra; an address in ZooKeeper needs `omidpy[zk]`, and
Kerberos `omidpy[kerberos]`.
"""
