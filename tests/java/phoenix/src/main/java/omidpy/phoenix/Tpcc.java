package omidpy.phoenix;

import com.google.gson.JsonObject;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.Date;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;

/**
 * New-Order, Payment and Delivery of TPC-C in SQL, each one transaction.
 *
 * <p>The tables are those of {@code tests/machines/tpcc}, where the same is done in Python. What is
 * refused for a conflict is tried again, as often as it takes.
 */
final class Tpcc {
  private static final int CONFLICT = 523; // TRANSACTION_CONFLICT_EXCEPTION
  private static final String[] LAST_NAMES = {"BAR", "OUGHT", "ABLE"};
  private static final Date DELIVERED = new Date(1709164800000L);

  private final Connection connection;
  private final String schema;
  private static final int[] EACH = {0, 50, 90};

  private final int warehouses;
  private final int districts;
  private final int customers;
  private final int items;
  private final Random random;
  private final Map<String, PreparedStatement> prepared = new HashMap<>();

  private Tpcc(Connection connection, JsonObject request) {
    this.connection = connection;
    this.schema = request.get("schema").getAsString();
    this.warehouses = request.get("warehouses").getAsInt();
    this.districts = request.get("districts").getAsInt();
    this.customers = request.get("customers").getAsInt();
    this.items = request.get("items").getAsInt();
    this.random = new Random(request.get("seed").getAsLong());
  }

  /** Commit so many transactions; how many of each kind, and how many were refused. */
  static Map<String, Long> run(Connection connection, JsonObject request) throws SQLException {
    Tpcc clerk = new Tpcc(connection, request);
    Map<String, Long> done = new HashMap<>();
    try {
      int times = request.get("times").getAsInt();
      for (int number = 0; number < times; number++) {
        // One of each comes first, so that none is missing by chance.
        int kind = number < EACH.length ? EACH[number] : clerk.random.nextInt(100);
        String name = kind < 45 ? "new_order" : kind < 88 ? "payment" : "delivery";
        while (!clerk.isDone(name)) {
          done.merge("refused", 1L, Long::sum);
        }
        done.merge(name, 1L, Long::sum);
      }
    } finally {
      for (PreparedStatement statement : clerk.prepared.values()) {
        statement.close();
      }
    }
    return done;
  }

  private boolean isDone(String name) throws SQLException {
    try {
      switch (name) {
        case "new_order" -> newOrder();
        case "payment" -> payment();
        default -> delivery();
      }
      connection.commit();
      return true;
    } catch (SQLException error) {
      connection.rollback();
      if (error.getErrorCode() != CONFLICT) {
        throw error;
      }
      return false;
    }
  }

  private void newOrder() throws SQLException {
    int warehouse = among(warehouses);
    int district = among(districts);
    int number =
        (Integer)
            row("SELECT D_NEXT_O_ID FROM %s.DISTRICT WHERE D_W_ID = ? AND D_ID = ?",
                warehouse, district)[0];
    run("UPSERT INTO %s.DISTRICT (D_W_ID, D_ID, D_NEXT_O_ID) VALUES (?, ?, ?)",
        warehouse, district, number + 1);
    int lines = 1 + among(4);
    run("UPSERT INTO %s.ORDERS (O_W_ID, O_D_ID, O_ID, O_C_ID, O_OL_CNT) VALUES (?, ?, ?, ?, ?)",
        warehouse, district, number, among(customers), lines);
    run("UPSERT INTO %s.NEW_ORDER VALUES (?, ?, ?)", warehouse, district, number);
    for (int line = 1; line <= lines; line++) {
      int item = among(items);
      int quantity = among(9);
      BigDecimal price = (BigDecimal) row("SELECT I_PRICE FROM %s.ITEM WHERE I_ID = ?", item)[0];
      Object[] stock =
          row("SELECT S_QUANTITY, S_YTD, S_ORDER_CNT FROM %s.STOCK WHERE S_W_ID = ? AND S_I_ID = ?",
              warehouse, item);
      int left = (Integer) stock[0] - quantity;
      run("UPSERT INTO %s.STOCK VALUES (?, ?, ?, ?, ?)",
          warehouse, item, left >= 10 ? left : left + 91, (Integer) stock[1] + quantity,
          (Integer) stock[2] + 1);
      run("UPSERT INTO %s.ORDER_LINE (OL_W_ID, OL_D_ID, OL_O_ID, OL_NUMBER, OL_I_ID, OL_QUANTITY, "
              + "OL_AMOUNT) VALUES (?, ?, ?, ?, ?, ?, ?)",
          warehouse, district, number, line, item, quantity,
          price.multiply(BigDecimal.valueOf(quantity)));
    }
  }

  private void payment() throws SQLException {
    int warehouse = among(warehouses);
    int district = among(districts);
    BigDecimal amount = BigDecimal.valueOf(100 + random.nextInt(499_900), 2);
    int customer = customer(warehouse, district);
    BigDecimal paid =
        (BigDecimal) row("SELECT W_YTD FROM %s.WAREHOUSE WHERE W_ID = ?", warehouse)[0];
    run("UPSERT INTO %s.WAREHOUSE VALUES (?, ?)", warehouse, paid.add(amount));
    paid =
        (BigDecimal)
            row("SELECT D_YTD FROM %s.DISTRICT WHERE D_W_ID = ? AND D_ID = ?",
                warehouse, district)[0];
    run("UPSERT INTO %s.DISTRICT (D_W_ID, D_ID, D_YTD) VALUES (?, ?, ?)",
        warehouse, district, paid.add(amount));
    Object[] before =
        row("SELECT C_BALANCE, C_YTD_PAYMENT, C_PAYMENT_CNT FROM %s.CUSTOMER "
                + "WHERE C_W_ID = ? AND C_D_ID = ? AND C_ID = ?",
            warehouse, district, customer);
    run("UPSERT INTO %s.CUSTOMER (C_W_ID, C_D_ID, C_ID, C_BALANCE, C_YTD_PAYMENT, C_PAYMENT_CNT) "
            + "VALUES (?, ?, ?, ?, ?, ?)",
        warehouse, district, customer, ((BigDecimal) before[0]).subtract(amount),
        ((BigDecimal) before[1]).add(amount), (Integer) before[2] + 1);
    run("UPSERT INTO %s.HISTORY VALUES (?, ?, ?, ?, ?)",
        UUID.randomUUID().toString(), warehouse, district, customer, amount);
  }

  /** Return who pays: most are found by their name, through the index, the one in the middle. */
  private int customer(int warehouse, int district) throws SQLException {
    if (random.nextInt(100) >= 60) {
      return among(customers);
    }
    List<Object[]> found =
        rows("SELECT C_ID FROM %s.CUSTOMER WHERE C_W_ID = ? AND C_D_ID = ? AND C_LAST = ? "
                + "ORDER BY C_ID",
            warehouse, district, LAST_NAMES[(among(customers)) % LAST_NAMES.length]);
    return (Integer) found.get(found.size() / 2)[0];
  }

  private void delivery() throws SQLException {
    int warehouse = among(warehouses);
    int carrier = among(10);
    for (int district = 1; district <= districts; district++) {
      List<Object[]> oldest =
          rows("SELECT NO_O_ID FROM %s.NEW_ORDER WHERE NO_W_ID = ? AND NO_D_ID = ? "
                  + "ORDER BY NO_O_ID LIMIT 1",
              warehouse, district);
      if (oldest.isEmpty()) {
        continue;
      }
      int number = (Integer) oldest.get(0)[0];
      run("DELETE FROM %s.NEW_ORDER WHERE NO_W_ID = ? AND NO_D_ID = ? AND NO_O_ID = ?",
          warehouse, district, number);
      int customer =
          (Integer)
              row("SELECT O_C_ID FROM %s.ORDERS WHERE O_W_ID = ? AND O_D_ID = ? AND O_ID = ?",
                  warehouse, district, number)[0];
      run("UPSERT INTO %s.ORDERS (O_W_ID, O_D_ID, O_ID, O_CARRIER_ID) VALUES (?, ?, ?, ?)",
          warehouse, district, number, carrier);
      BigDecimal amount = BigDecimal.ZERO;
      for (Object[] line :
          rows("SELECT OL_NUMBER, OL_AMOUNT FROM %s.ORDER_LINE "
                  + "WHERE OL_W_ID = ? AND OL_D_ID = ? AND OL_O_ID = ?",
              warehouse, district, number)) {
        amount = amount.add((BigDecimal) line[1]);
        run("UPSERT INTO %s.ORDER_LINE (OL_W_ID, OL_D_ID, OL_O_ID, OL_NUMBER, OL_DELIVERY_D) "
                + "VALUES (?, ?, ?, ?, ?)",
            warehouse, district, number, line[0], DELIVERED);
      }
      Object[] before =
          row("SELECT C_BALANCE, C_DELIVERY_CNT FROM %s.CUSTOMER "
                  + "WHERE C_W_ID = ? AND C_D_ID = ? AND C_ID = ?",
              warehouse, district, customer);
      run("UPSERT INTO %s.CUSTOMER (C_W_ID, C_D_ID, C_ID, C_BALANCE, C_DELIVERY_CNT) "
              + "VALUES (?, ?, ?, ?, ?)",
          warehouse, district, customer, ((BigDecimal) before[0]).add(amount),
          (Integer) before[1] + 1);
    }
  }

  /** Return a number from 1. */
  private int among(int count) {
    return 1 + random.nextInt(count);
  }

  private Object[] row(String sql, Object... parameters) throws SQLException {
    return rows(sql, parameters).get(0);
  }

  private List<Object[]> rows(String sql, Object... parameters) throws SQLException {
    List<Object[]> rows = new ArrayList<>();
    try (ResultSet found = statement(sql, parameters).executeQuery()) {
      int columns = found.getMetaData().getColumnCount();
      while (found.next()) {
        Object[] row = new Object[columns];
        for (int column = 0; column < columns; column++) {
          row[column] = found.getObject(column + 1);
        }
        rows.add(row);
      }
    }
    return rows;
  }

  private void run(String sql, Object... parameters) throws SQLException {
    statement(sql, parameters).executeUpdate();
  }

  private PreparedStatement statement(String sql, Object... parameters) throws SQLException {
    PreparedStatement statement = prepared.get(sql);
    if (statement == null) {
      statement = connection.prepareStatement(String.format(sql, schema));
      prepared.put(sql, statement);
    }
    int number = 0;
    for (Object parameter : parameters) {
      statement.setObject(++number, parameter);
    }
    return statement;
  }
}
