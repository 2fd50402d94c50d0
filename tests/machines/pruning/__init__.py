"""An explicit-state model of pruning: every interleaving of a small world, searched breadth first.

state     what there is, and what nobody may ever see
world     which setting, which actors, which mistake
clients   the oracle with its low watermark; clients that lose replies and die
passes    healers of two tables, or one of them merely asked
pruner    horizons, deletes, a run that was deposed
others    a reader, snapshots that are restored, an oracle that loses its state, collection
search    all of them together
"""
