"""A client of HBase's own RPC: no gateway, no Java, and no knowledge of transactions.

    frames.py       the bytes of a connection: its opening, requests, answers; no I/O
    cellblock.py    cells as they travel beside the messages; compiled where that is possible
    values.py       servers, regions, reads and mutations, as values
    messages.py     the data calls, Get, Mutate and Multi, and their answers
    scan_messages.py  those of a scan
    schema.py       the master's calls about tables and regions
    faults.py       how a call can fail, and what is certain about its outcome
    connection.py   one socket to one service of one server, shared by threads
    connections.py  all of them; fork
    registry.py     where is the catalogue, where the master?  By ZooKeeper or by RPC
    locations.py    which server has a row?
    attempts.py     is a call that failed made again, and when?
    calls.py        calls made again until they are answered, or time is up
    client.py       get, put, delete, check-and-mutate of rows, wherever they are
    steps.py        things that are done one after another
    scanning.py     one page of a scan
    admin.py        tables and regions
    status.py       what each region server has to do
    diagnosis.py    what answers at a port where no HBase does?
    layers.py       encryption between a connection and its socket; no I/O
    security.py     what an address says of it
    sasl.py         the bytes by which both agree upon who calls; no I/O
    kerberos.py     the mechanism GSSAPI
    digest.py       the mechanism DIGEST-MD5, by which a token is shown
    tokens.py       tokens, and which one this process was handed
    opening.py      how a conversation begins
    inspection.py   can every server be reached from here?
    address.py      what `hbase://...` says

Importing it needs no extra; an address in ZooKeeper needs `omidpy[zk]`, and
Kerberos `omidpy[kerberos]`.
"""
