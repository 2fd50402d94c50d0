"""Calls to the server that has a row, or to the master, made again until they are answered.

    registry.py     where is the catalogue, where the master?  By ZooKeeper or by RPC
    locations.py    which server has a row?
    attempts.py     is a call that failed made again, and when?
    calls.py        calls made again until they are answered, or time is up
    steps.py        things that are done one after another

What may be made twice is said by the caller.
"""
