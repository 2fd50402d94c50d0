"""How fast are transactions on HBase, beside Apache Omid's own client and beside none at all?

`python -m bench.hbase` starts an HBase, two of Omid's oracles and one of ours, and lets the same
work run through each in turns.
"""
