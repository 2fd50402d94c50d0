"""Compaction: heal what dead clients left, drop what nobody can read, keep the commit table small.

`plan.py` holds the order of steps, `local.py` runs it in this process and `job.py` on Spark.
"""
