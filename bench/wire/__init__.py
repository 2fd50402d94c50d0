"""How many transactions does an oracle decide for each second of a processor, beside Omid's own?

`python -m bench.wire` starts a `tso-server` that persists nothing and Omid's oracle with its null
commit table, each on the same one core, and lets one load generator on another core ask both in
turns.
"""
