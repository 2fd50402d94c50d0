"""What must hold of the rows whatever has run (TPC-C, 3.3.2), read by SQL and by Python.

Each of the twelve is about sums and counts that several transactions keep together: an update that
is lost, half a transaction, or a row that one of both does not see breaks one.  The last two are
not TPC-C's: what was ordered was taken from the stock, and the index has every customer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from omidpy.manager import TransactionManager
from omidpy.phoenix import PhoenixTable
from omidpy.tx.transaction import Transaction
from tests.machines.phoenix import Connection, Phoenix
from tests.machines.tpcc import tables as names

Rows: TypeAlias = Mapping[str, list[dict[str, Any]]]
"""By table, in the order of their keys."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check(phoenix: Phoenix, tm: TransactionManager, schema: str) -> Rows:
    """Judge the rows that Python reads, those that SQL finds, and SQL's sums; nobody writes."""
    opened = names.opened(tm, schema)
    with tm.begin(read_only=True) as tx:
        ours = by_python(tx, opened)
    assert broken(ours) == []
    assert by_sql(phoenix.sql, schema, opened) == ours
    assert broken_in_sql(phoenix.sql, schema) == []
    return ours


def by_python(tx: Transaction, tables: Mapping[str, PhoenixTable]) -> Rows:
    """Return all rows, as a transaction of ours sees them."""
    return {name: list(table.scan(tx)) for name, table in tables.items()}


def by_sql(sql: Connection, schema: str, tables: Mapping[str, PhoenixTable]) -> Rows:
    """Return all rows as SQL finds them, each table at a moment of its own if `sql` commits."""
    found = {}
    for name, table in tables.items():
        columns = [*table.key, *table.columns]
        rows = sql.query(
            f"SELECT /*+ NO_INDEX */ {', '.join(columns)} FROM {schema}.{name} "
            f"ORDER BY {', '.join(table.key)}"
        )
        found[name] = [
            {column: _value(column, one) for column, one in zip(columns, row, strict=True)}
            for row in rows
        ]
    return found


_MONEY = {"W_YTD", "D_YTD", "C_BALANCE", "C_YTD_PAYMENT", "H_AMOUNT", "OL_AMOUNT", "I_PRICE"}


def _value(column: str, value: Any) -> Any:
    """Return what Python has for a value of SQL's."""
    if value is None:
        return None
    if column in _MONEY:
        return Decimal(value)
    if column == "OL_DELIVERY_D":
        return _EPOCH + timedelta(milliseconds=value)
    return value


def broken_in_sql(sql: Connection, schema: str) -> list[str]:
    """Judge the first four by SQL's own sums, and whether the index has every customer."""

    def by_key(query: str, keys: int) -> dict[tuple[Any, ...], Any]:
        return {tuple(row[:keys]): row[keys] for row in sql.query(query)}

    district = "D_W_ID, D_ID"
    waiting = f"FROM {schema}.NEW_ORDER GROUP BY NO_W_ID, NO_D_ID"
    orders = f"FROM {schema}.ORDERS GROUP BY O_W_ID, O_D_ID"
    ytd = by_key(f"SELECT W_ID, W_YTD FROM {schema}.WAREHOUSE", 1)
    sums = by_key(f"SELECT D_W_ID, SUM(D_YTD) FROM {schema}.DISTRICT GROUP BY D_W_ID", 1)
    following = by_key(f"SELECT {district}, D_NEXT_O_ID - 1 FROM {schema}.DISTRICT", 2)
    newest = by_key(f"SELECT O_W_ID, O_D_ID, MAX(O_ID) {orders}", 2)
    last = by_key(f"SELECT NO_W_ID, NO_D_ID, MAX(NO_O_ID) {waiting}", 2)
    span = by_key(f"SELECT NO_W_ID, NO_D_ID, MAX(NO_O_ID) - MIN(NO_O_ID) + 1 {waiting}", 2)
    count = by_key(f"SELECT NO_W_ID, NO_D_ID, COUNT(*) {waiting}", 2)
    said = by_key(f"SELECT O_W_ID, O_D_ID, SUM(O_OL_CNT) {orders}", 2)
    lines = by_key(
        f"SELECT OL_W_ID, OL_D_ID, COUNT(*) FROM {schema}.ORDER_LINE GROUP BY OL_W_ID, OL_D_ID", 2
    )
    customers = f"SELECT C_W_ID, C_D_ID, C_LAST, C_ID FROM {schema}.CUSTOMER"
    claims = {
        "1, W_YTD is the sum of D_YTD": _decimals(ytd) == _decimals(sums),
        "2, D_NEXT_O_ID - 1 is the largest O_ID": newest
        == {key: number for key, number in following.items() if number},
        "2, and the largest NO_O_ID": all(newest[key] == number for key, number in last.items()),
        "3, no NO_O_ID is missing": span == count,
        "4, O_OL_CNT adds up to the lines": said == lines,
        "the index has every customer": sorted(sql.query(customers))
        == sorted(sql.query(customers.replace("SELECT", "SELECT /*+ NO_INDEX */"))),
    }
    return [claim for claim, holds in claims.items() if not holds]


def _decimals(found: Mapping[tuple[Any, ...], Any]) -> dict[tuple[Any, ...], Decimal]:
    return {key: Decimal(value) for key, value in found.items()}


def broken(rows: Rows) -> list[str]:
    """Return which of the conditions the rows do not fulfil."""
    return [claim for claim, holds in _judged(rows) if not holds]


def _judged(rows: Rows) -> Iterator[tuple[str, bool]]:
    by_warehouse: dict[int, Decimal] = defaultdict(Decimal)
    for one in rows[names.DISTRICT]:
        by_warehouse[one["D_W_ID"]] += one["D_YTD"]
    ytd = {one["W_ID"]: one["W_YTD"] for one in rows[names.WAREHOUSE]}
    yield "1, W_YTD is the sum of D_YTD", ytd == by_warehouse
    orders = {(one["O_W_ID"], one["O_D_ID"], one["O_ID"]): one for one in rows[names.ORDERS]}
    waiting = {(one["NO_W_ID"], one["NO_D_ID"], one["NO_O_ID"]) for one in rows[names.NEW_ORDER]}
    lines: dict[tuple[int, int, int], list[dict[str, Any]]] = defaultdict(list)
    for one in rows[names.ORDER_LINE]:
        lines[one["OL_W_ID"], one["OL_D_ID"], one["OL_O_ID"]].append(one)
    for one in rows[names.DISTRICT]:
        district = (one["D_W_ID"], one["D_ID"])
        made = _numbers(orders, district)
        left = _numbers(waiting, district)
        yield (
            f"2 in {district}, each O_ID below D_NEXT_O_ID",
            made == list(range(1, one["D_NEXT_O_ID"])),
        )
        yield f"2 and 3 in {district}, the newest wait", left == made[len(made) - len(left) :]
        counted = sum(orders[(*district, number)]["O_OL_CNT"] for number in made)
        found = sum(len(of) for key, of in lines.items() if key[:2] == district)
        yield f"4 in {district}, O_OL_CNT adds up to the lines", counted == found
    yield (
        "5, who waits has no carrier",
        all((order["O_CARRIER_ID"] is None) == (key in waiting) for key, order in orders.items()),
    )
    yield (
        "6, each order has its lines",
        (
            {key: order["O_OL_CNT"] for key, order in orders.items()}
            == {key: len(of) for key, of in lines.items()}
        ),
    )
    yield (
        "7, lines are delivered with their order",
        all(
            (line["OL_DELIVERY_D"] is None) == (orders[key]["O_CARRIER_ID"] is None)
            for key, of in lines.items()
            for line in of
        ),
    )
    yield from _judged_payments(rows, ytd, orders, lines)


def _judged_payments(
    rows: Rows,
    ytd: Mapping[int, Decimal],
    orders: Mapping[tuple[int, int, int], dict[str, Any]],
    lines: Mapping[tuple[int, int, int], list[dict[str, Any]]],
) -> Iterator[tuple[str, bool]]:
    paid: dict[tuple[int, ...], Decimal] = defaultdict(Decimal)
    for one in rows[names.HISTORY]:
        place = (one["H_W_ID"], one["H_D_ID"], one["H_C_ID"])
        for length in (1, 2, 3):
            paid[place[:length]] += one["H_AMOUNT"]
    yield "8, W_YTD is what was paid", all(paid[key,] == total for key, total in ytd.items())
    yield (
        "9, D_YTD is what was paid",
        all(paid[one["D_W_ID"], one["D_ID"]] == one["D_YTD"] for one in rows[names.DISTRICT]),
    )
    delivered: dict[tuple[int, ...], Decimal] = defaultdict(Decimal)
    for key, order in orders.items():
        if order["O_CARRIER_ID"] is not None:
            customer = (*key[:2], order["O_C_ID"])
            delivered[customer] += sum(line["OL_AMOUNT"] for line in lines[key])
    for one in rows[names.CUSTOMER]:
        customer = (one["C_W_ID"], one["C_D_ID"], one["C_ID"])
        due = delivered[customer] - paid[customer]
        yield f"10 for {customer}, C_BALANCE", one["C_BALANCE"] == due
        yield (
            f"12 for {customer}, C_YTD_PAYMENT",
            (one["C_BALANCE"] + one["C_YTD_PAYMENT"] == delivered[customer]),
        )
    taken: Counter[tuple[int, int]] = Counter()
    times: Counter[tuple[int, int]] = Counter()
    for key, of in lines.items():
        for line in of:
            taken[key[0], line["OL_I_ID"]] += line["OL_QUANTITY"]
            times[key[0], line["OL_I_ID"]] += 1
    yield (
        "the stock has given what was ordered",
        all(
            (taken[place], times[place]) == (one["S_YTD"], one["S_ORDER_CNT"])
            for one in rows[names.STOCK]
            for place in [(one["S_W_ID"], one["S_I_ID"])]
        ),
    )


def _numbers(keys: Iterable[tuple[int, int, int]], district: tuple[int, int]) -> list[int]:
    return sorted(key[2] for key in keys if key[:2] == district)
