"""Operations of several steps, beside Accumulo's executor and beside bare commits.

    machines.py   ZooKeeper, and Accumulo 2.1.4's executor on it
    chains.py     the same work by ours, and by bare SQLite
    accumulo/     the program around Accumulo's classes; Maven fetches them

`python -m bench.fate` measures all of it.
"""
