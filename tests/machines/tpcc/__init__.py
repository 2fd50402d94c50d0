"""Orders and payments of warehouses, as TPC-C has them, in SQL and in Python on the same tables.

tables.py        the tables of Phoenix's, and what they begin with
clerk.py         New-Order, Payment and Delivery in Python
conditions.py    what must hold of the rows whatever has run, read by SQL and by Python
__main__.py      a clerk as a process, which works until it is killed

The same transactions in SQL are `Tpcc.java` in `tests/java/phoenix`.  A run is small: what is
measured is not speed but whether anything is lost.
"""
