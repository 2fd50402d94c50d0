"""The bytes of HBase's RPC: what is asked and answered, as frames and messages.  No I/O.

    frames.py       the bytes of a connection: its opening, requests, answers
    messages.py     the data calls, Get, Mutate and Multi, and their answers
    schema.py       the master's calls about tables and regions
    snapshots.py    those about snapshots of tables
    status.py       what each region server has to do

Source: the `.proto` files of HBase 2.6.
"""
