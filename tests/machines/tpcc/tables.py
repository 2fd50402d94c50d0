"""The nine tables of TPC-C, with the columns that its transactions change or read."""

from __future__ import annotations

from decimal import Decimal
from typing import Final, NamedTuple

from omidpy import phoenix as phoenixs
from omidpy.manager import TransactionManager
from omidpy.phoenix import PhoenixTable
from tests.machines.phoenix import TRANSACTIONAL, Connection, Phoenix

WAREHOUSE: Final = "WAREHOUSE"
DISTRICT: Final = "DISTRICT"
CUSTOMER: Final = "CUSTOMER"
HISTORY: Final = "HISTORY"
ORDERS: Final = "ORDERS"
NEW_ORDER: Final = "NEW_ORDER"
ORDER_LINE: Final = "ORDER_LINE"
STOCK: Final = "STOCK"
ITEM: Final = "ITEM"
BY_LAST: Final = "BY_LAST"
"""An index of customers, by which SQL finds some of those who pay."""

_COLUMNS: Final = {
    WAREHOUSE: "W_ID INTEGER NOT NULL PRIMARY KEY, W_YTD DECIMAL(12,2)",
    DISTRICT: (
        "D_W_ID INTEGER NOT NULL, D_ID INTEGER NOT NULL, D_YTD DECIMAL(12,2), D_NEXT_O_ID INTEGER "
        "CONSTRAINT PK PRIMARY KEY (D_W_ID, D_ID)"
    ),
    CUSTOMER: (
        "C_W_ID INTEGER NOT NULL, C_D_ID INTEGER NOT NULL, C_ID INTEGER NOT NULL, C_LAST VARCHAR, "
        "C_BALANCE DECIMAL(12,2), C_YTD_PAYMENT DECIMAL(12,2), C_PAYMENT_CNT INTEGER, "
        "C_DELIVERY_CNT INTEGER CONSTRAINT PK PRIMARY KEY (C_W_ID, C_D_ID, C_ID)"
    ),
    HISTORY: (
        "H_ID VARCHAR PRIMARY KEY, H_W_ID INTEGER, H_D_ID INTEGER, H_C_ID INTEGER, "
        "H_AMOUNT DECIMAL(6,2)"
    ),
    ORDERS: (
        "O_W_ID INTEGER NOT NULL, O_D_ID INTEGER NOT NULL, O_ID INTEGER NOT NULL, O_C_ID INTEGER, "
        "O_CARRIER_ID INTEGER, O_OL_CNT INTEGER CONSTRAINT PK PRIMARY KEY (O_W_ID, O_D_ID, O_ID)"
    ),
    NEW_ORDER: (
        "NO_W_ID INTEGER NOT NULL, NO_D_ID INTEGER NOT NULL, NO_O_ID INTEGER NOT NULL "
        "CONSTRAINT PK PRIMARY KEY (NO_W_ID, NO_D_ID, NO_O_ID)"
    ),
    ORDER_LINE: (
        "OL_W_ID INTEGER NOT NULL, OL_D_ID INTEGER NOT NULL, OL_O_ID INTEGER NOT NULL, "
        "OL_NUMBER INTEGER NOT NULL, OL_I_ID INTEGER, OL_QUANTITY INTEGER, OL_AMOUNT DECIMAL(6,2), "
        "OL_DELIVERY_D DATE CONSTRAINT PK PRIMARY KEY (OL_W_ID, OL_D_ID, OL_O_ID, OL_NUMBER)"
    ),
    STOCK: (
        "S_W_ID INTEGER NOT NULL, S_I_ID INTEGER NOT NULL, S_QUANTITY INTEGER, S_YTD INTEGER, "
        "S_ORDER_CNT INTEGER CONSTRAINT PK PRIMARY KEY (S_W_ID, S_I_ID)"
    ),
    ITEM: "I_ID INTEGER NOT NULL PRIMARY KEY, I_PRICE DECIMAL(5,2)",
}
TABLES: Final = tuple(_COLUMNS)
_SALTED: Final = {ORDER_LINE: 2}
"""Tables of several regions from the beginning."""
LAST_NAMES: Final = ("BAR", "OUGHT", "ABLE")


class Size(NamedTuple):
    """How much there is of everything."""

    warehouses: int = 2
    districts: int = 2
    """Of each warehouse."""
    customers: int = 5
    """Of each district."""
    items: int = 10

    def words(self) -> list[str]:
        """Return it as arguments of a process."""
        return [str(one) for one in self]


def made(phoenix: Phoenix, tm: TransactionManager, schema: str, size: Size) -> None:
    """Make the tables in SQL, adopt them, and write the first rows."""
    _make(phoenix.sql, schema)
    phoenix.adopt(*(f"{schema}.{name}" for name in (*TABLES, BY_LAST)))
    sql = phoenix.driver.open()
    _fill(sql, tm, schema, size)
    sql.close()


def _make(sql: Connection, schema: str) -> None:
    """Make the tables and the index; `sql` commits each statement."""
    for table, columns in _COLUMNS.items():
        salt = f"SALT_BUCKETS={_SALTED[table]}, " if table in _SALTED else ""
        sql.execute(f"CREATE TABLE {schema}.{table} ({columns}) {salt}{TRANSACTIONAL}")
    sql.execute(f"CREATE INDEX {BY_LAST} ON {schema}.{CUSTOMER} (C_W_ID, C_D_ID, C_LAST)")


def _fill(sql: Connection, tm: TransactionManager, schema: str, size: Size) -> None:
    """Write the first rows: customers in SQL, for their index, and the others in Python.

    `sql` commits when it is told to.
    """
    tables = opened(tm, schema)
    places = [
        (warehouse, district)
        for warehouse in range(1, size.warehouses + 1)
        for district in range(1, size.districts + 1)
    ]
    for warehouse, district in places:
        for customer in range(1, size.customers + 1):
            sql.execute(
                f"UPSERT INTO {schema}.{CUSTOMER} VALUES ({warehouse}, {district}, {customer}, "
                f"'{LAST_NAMES[customer % len(LAST_NAMES)]}', 0, 0, 0, 0)"
            )
    sql.commit()
    with tm.begin() as tx:
        for warehouse in range(1, size.warehouses + 1):
            tables[WAREHOUSE].put(tx, {"W_ID": warehouse, "W_YTD": Decimal(0)})
        for warehouse, district in places:
            tables[DISTRICT].put(
                tx, {"D_W_ID": warehouse, "D_ID": district, "D_YTD": Decimal(0), "D_NEXT_O_ID": 1}
            )
        for item in range(1, size.items + 1):
            tables[ITEM].put(tx, {"I_ID": item, "I_PRICE": Decimal(100 + 7 * item) / 100})
            for warehouse in range(1, size.warehouses + 1):
                tables[STOCK].put(
                    tx,
                    {
                        "S_W_ID": warehouse,
                        "S_I_ID": item,
                        "S_QUANTITY": 50,
                        "S_YTD": 0,
                        "S_ORDER_CNT": 0,
                    },
                )


def opened(tm: TransactionManager, schema: str) -> dict[str, PhoenixTable]:
    """Open all of them.

    Nobody changes the name of a customer, so that no row of the index has to change with one.
    """
    return {
        table: phoenixs.table(
            tm, f"{schema}.{table}", phoenix_indexes="mine" if table == CUSTOMER else None
        )
        for table in TABLES
    }
