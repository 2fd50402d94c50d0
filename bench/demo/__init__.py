"""The main job on real input: load flights while loaders are killed, compact, check.

`make demo` runs it.  Each flight from New York in 2013 is one transaction over four tables:

    flights           one row a flight
    flights_by_plane  an index row: which flights did a plane make?
    flights_by_route  an index row: which flights went from here to there?
    counters          flights per plane and route, read and written back: here transactions conflict

The parts, in the order of the data: `flights` reads the input and says what each flight writes,
`loader` is a process that writes, `load` runs several of them and kills some, `compaction` runs the
nightly Spark job, `check` recomputes everything from the input, `report` tells it to a person.
"""
