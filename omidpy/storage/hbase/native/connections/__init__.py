"""Sockets to HBase's servers, and who else may answer there.

    opening.py      how a conversation begins
    connection.py   one socket to one service of one server, shared by threads
    pool.py         all of them; fork
    diagnosis.py    what answers at a port where no HBase does?

Which server is called is said by the caller.
"""
