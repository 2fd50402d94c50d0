"""Compaction: heal what dead clients left, drop what none can read, keep the commit table small.

One folder for each question:

    rows/       what becomes of a row
    tables/     whose is a table?
    ranges/     one pass over one range of rows, and its claim
    pruning/    what may be forgotten?
    check/      what is wrong with a store, and what may be mended
    run/        one run: `run/plan.py` holds the order of steps
    shell/      how a run is started and shown, on Spark (`shell/job.py`) and by the CLI
"""
