"""New-Order, Payment and Delivery in Python, each one transaction."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from omidpy.errors import OmidError
from omidpy.manager import TransactionManager
from omidpy.phoenix import PhoenixTable
from omidpy.tx.transaction import Transaction
from tests.machines.tpcc import tables as names
from tests.machines.tpcc.tables import Size, opened


class Clerk:
    """One of those who serve all warehouses.

    Attributes:
        committed: How many transactions did, by their kind.
        refused: How many were aborted for a conflict, and tried again.
    """

    def __init__(self, tm: TransactionManager, schema: str, size: Size, *, seed: int) -> None:
        """Open the tables."""
        self._tm = tm
        self._tables = opened(tm, schema)
        self._size = size
        self._chance = random.Random(seed)
        self.committed: Counter[str] = Counter()
        self.refused = 0

    def work(self, times: int) -> None:
        """Commit so many transactions, in the mix of TPC-C.

        Raises:
            OmidError: one failed otherwise than by a conflict.
        """
        for _ in range(times):
            (do,) = self._chance.choices(
                (self._new_order, self._payment, self._delivery), weights=(45, 43, 12)
            )
            while not self._is_done(do):
                self.refused += 1
            self.committed[do.__name__.removeprefix("_")] += 1

    def _is_done(self, do: Callable[[Transaction], None]) -> bool:
        try:
            with self._tm.begin() as tx:
                do(tx)
        except OmidError as error:
            if not error.retryable:
                raise
            return False
        return True

    def _new_order(self, tx: Transaction) -> None:
        warehouse, district, customer = self._somebody()
        key = (warehouse, district)
        number: int = self._read(tx, names.DISTRICT, key)["D_NEXT_O_ID"]
        self._write(tx, names.DISTRICT, key, {"D_NEXT_O_ID": number + 1})
        lines = self._chance.randint(2, 5)
        order = {"O_C_ID": customer, "O_CARRIER_ID": None, "O_OL_CNT": lines}
        self._write(tx, names.ORDERS, (*key, number), order)
        self._write(tx, names.NEW_ORDER, (*key, number), {})
        for line in range(1, lines + 1):
            item, quantity = self._chance.randint(1, self._size.items), self._chance.randint(1, 9)
            price = self._read(tx, names.ITEM, (item,))["I_PRICE"]
            stock = self._read(tx, names.STOCK, (warehouse, item))
            left = stock["S_QUANTITY"] - quantity
            changed = {
                "S_QUANTITY": left if left >= 10 else left + 91,
                "S_YTD": stock["S_YTD"] + quantity,
                "S_ORDER_CNT": stock["S_ORDER_CNT"] + 1,
            }
            self._write(tx, names.STOCK, (warehouse, item), changed)
            ordered = {"OL_I_ID": item, "OL_QUANTITY": quantity, "OL_AMOUNT": price * quantity}
            self._write(tx, names.ORDER_LINE, (*key, number, line), ordered)

    def _payment(self, tx: Transaction) -> None:
        warehouse, district, customer = self._somebody()
        amount = Decimal(self._chance.randint(100, 500_000)) / 100
        self._add(tx, names.WAREHOUSE, (warehouse,), {"W_YTD": amount})
        self._add(tx, names.DISTRICT, (warehouse, district), {"D_YTD": amount})
        self._add(
            tx,
            names.CUSTOMER,
            (warehouse, district, customer),
            {"C_BALANCE": -amount, "C_YTD_PAYMENT": amount, "C_PAYMENT_CNT": 1},
        )
        paid = {"H_W_ID": warehouse, "H_D_ID": district, "H_C_ID": customer, "H_AMOUNT": amount}
        self._write(tx, names.HISTORY, (uuid.UUID(int=self._chance.getrandbits(128)).hex,), paid)

    def _delivery(self, tx: Transaction) -> None:
        warehouse = self._chance.randint(1, self._size.warehouses)
        carrier = self._chance.randint(1, 10)
        for district in range(1, self._size.districts + 1):
            waiting = self._tables[names.NEW_ORDER]
            oldest = next(waiting.scan(tx, warehouse, district, batch_size=1), None)
            if oldest is None:
                continue
            key = (warehouse, district, oldest["NO_O_ID"])
            waiting.delete(tx, key)
            customer = self._read(tx, names.ORDERS, key)["O_C_ID"]
            self._write(tx, names.ORDERS, key, {"O_CARRIER_ID": carrier})
            amount = Decimal(0)
            for line in list(self._tables[names.ORDER_LINE].scan(tx, *key)):
                amount += line["OL_AMOUNT"]
                delivered = {"OL_DELIVERY_D": datetime(2024, 2, 29, tzinfo=UTC)}
                self._write(tx, names.ORDER_LINE, (*key, line["OL_NUMBER"]), delivered)
            self._add(
                tx,
                names.CUSTOMER,
                (warehouse, district, customer),
                {"C_BALANCE": amount, "C_DELIVERY_CNT": 1},
            )

    def _somebody(self) -> tuple[int, int, int]:
        return (
            self._chance.randint(1, self._size.warehouses),
            self._chance.randint(1, self._size.districts),
            self._chance.randint(1, self._size.customers),
        )

    def _read(self, tx: Transaction, table: str, key: tuple[Any, ...]) -> dict[str, Any]:
        row = self._tables[table].get(tx, key)
        assert row is not None, f"{table} has no row {key}"
        return row

    def _write(
        self, tx: Transaction, table: str, key: tuple[Any, ...], values: dict[str, Any]
    ) -> None:
        into: PhoenixTable = self._tables[table]
        into.put(tx, {**dict(zip(into.key, key, strict=True)), **values})

    def _add(self, tx: Transaction, table: str, key: tuple[Any, ...], more: dict[str, Any]) -> None:
        row = self._read(tx, table, key)
        self._write(tx, table, key, {name: row[name] + value for name, value in more.items()})
