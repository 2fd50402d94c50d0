package omidpy.phoenix;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Says SQL to Apache Phoenix, as a test asks for it.
 *
 * <p>It speaks as {@code omidpy.driver.Driver} does: a line of JSON asks, a line answers; what is
 * asked of one {@code session} is done in order by one thread; the process ends with its standard
 * input. A connection is known by its name, and commits by itself unless it was opened otherwise.
 */
public final class Sql {
  private static final HexFormat HEX = HexFormat.of();

  private final Gson gson = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
  private final Map<String, Connection> connections = new ConcurrentHashMap<>();
  private final Map<String, ExecutorService> sessions = new HashMap<>();
  private final PrintStream answers;

  private Sql(PrintStream answers) {
    this.answers = answers;
  }

  public static void main(String[] arguments) throws IOException {
    PrintStream answers = System.out;
    // Whatever a library prints must not be taken for an answer.
    System.setOut(System.err);
    new Sql(answers).serve();
    Runtime.getRuntime().halt(0);
  }

  private void serve() throws IOException {
    BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      JsonObject request = JsonParser.parseString(line).getAsJsonObject();
      String session = request.has("session") ? request.get("session").getAsString() : "";
      sessions
          .computeIfAbsent(session, name -> Executors.newSingleThreadExecutor())
          .execute(() -> answer(request));
    }
  }

  private void answer(JsonObject request) {
    Map<String, Object> answer = new HashMap<>();
    answer.put("id", request.get("id").getAsLong());
    try {
      answer.put("value", done(request));
    } catch (Throwable error) {
      answer.put("error", described(error));
    }
    synchronized (answers) {
      answers.writeBytes((gson.toJson(answer) + "\n").getBytes(StandardCharsets.UTF_8));
      answers.flush();
    }
  }

  private Object done(JsonObject request) throws Exception {
    String what = request.get("do").getAsString();
    String name = text(request, "connection");
    if (what.equals("sql.open")) {
      Properties properties = new Properties();
      request
          .getAsJsonObject("settings")
          .entrySet()
          .forEach(entry -> properties.put(entry.getKey(), entry.getValue().getAsString()));
      Connection opened = DriverManager.getConnection(text(request, "url"), properties);
      opened.setAutoCommit(request.get("autocommit").getAsBoolean());
      connections.put(name, opened);
      return null;
    }
    Connection connection = connections.get(name);
    if (connection == null) {
      throw new IllegalArgumentException("no connection is called " + name);
    }
    switch (what) {
      case "sql.execute":
        try (PreparedStatement statement = prepared(connection, request)) {
          // The count of rows; a statement that returns rows is no business of this command.
          return statement.executeUpdate();
        }
      case "sql.query":
        try (PreparedStatement statement = prepared(connection, request);
            ResultSet found = statement.executeQuery()) {
          return rows(found);
        }
      case "sql.commit":
        connection.commit();
        return null;
      case "sql.rollback":
        connection.rollback();
        return null;
      case "sql.close":
        connections.remove(name).close();
        return null;
      case "sql.transfers":
        return transfers(connection, request);
      case "sql.tpcc":
        return Tpcc.run(connection, request);
      default:
        throw new IllegalArgumentException("no command is called " + what);
    }
  }

  /**
   * Move one unit between two random accounts, so many times; the number of those that committed.
   *
   * <p>Account K has its balance in N. What is refused for a conflict is not tried again.
   */
  private static long transfers(Connection connection, JsonObject request) throws SQLException {
    String table = text(request, "table");
    int accounts = request.get("accounts").getAsInt();
    java.util.Random random = new java.util.Random(request.get("seed").getAsLong());
    long committed = 0;
    try (PreparedStatement read =
            connection.prepareStatement("SELECT N FROM " + table + " WHERE K = ?");
        PreparedStatement write =
            connection.prepareStatement("UPSERT INTO " + table + "(K, N) VALUES (?, ?)")) {
      for (int times = request.get("times").getAsInt(); times > 0; times--) {
        int from = random.nextInt(accounts);
        int to = (from + 1 + random.nextInt(accounts - 1)) % accounts;
        try {
          for (int[] move : new int[][] {{from, -1}, {to, 1}}) {
            String key = String.format("a%03d", move[0]);
            read.setString(1, key);
            long before;
            try (ResultSet found = read.executeQuery()) {
              found.next();
              before = found.getLong(1);
            }
            write.setString(1, key);
            write.setLong(2, before + move[1]);
            write.executeUpdate();
          }
          connection.commit();
          committed++;
        } catch (SQLException error) {
          connection.rollback();
          if (error.getErrorCode() != 523) { // TRANSACTION_CONFLICT_EXCEPTION
            throw error;
          }
        }
      }
    }
    return committed;
  }

  private static PreparedStatement prepared(Connection connection, JsonObject request)
      throws SQLException {
    PreparedStatement statement = connection.prepareStatement(text(request, "sql"));
    int number = 0;
    if (request.has("parameters")) {
      for (JsonElement parameter : request.getAsJsonArray("parameters")) {
        statement.setObject(++number, parameter.isJsonNull() ? null : parameter.getAsString());
      }
    }
    return statement;
  }

  private static List<List<Object>> rows(ResultSet found) throws SQLException {
    int columns = found.getMetaData().getColumnCount();
    List<List<Object>> rows = new ArrayList<>();
    while (found.next()) {
      List<Object> row = new ArrayList<>();
      for (int column = 1; column <= columns; column++) {
        row.add(plain(found.getObject(column)));
      }
      rows.add(row);
    }
    return rows;
  }

  /** What JSON can hold: bytes as hexadecimal digits, decimals and moments as text. */
  private static Object plain(Object value) throws SQLException {
    if (value == null || value instanceof Boolean || value instanceof String) {
      return value;
    }
    if (value instanceof byte[] bytes) {
      return HEX.formatHex(bytes);
    }
    if (value instanceof BigDecimal decimal) {
      return decimal.toPlainString();
    }
    if (value instanceof Timestamp moment) {
      return String.format("%d.%09d", Math.floorDiv(moment.getTime(), 1000L), moment.getNanos());
    }
    if (value instanceof java.util.Date moment) {
      return moment.getTime();
    }
    if (value instanceof Number number) {
      double real = number.doubleValue();
      return Double.isNaN(real) || Double.isInfinite(real) ? String.valueOf(real) : number;
    }
    return value.toString();
  }

  private static String text(JsonObject request, String name) {
    return request.get(name).getAsString();
  }

  private static Map<String, Object> described(Throwable error) {
    List<String> causes = new ArrayList<>();
    for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
      causes.add(cause.getClass().getSimpleName() + ": " + cause.getMessage());
    }
    Map<String, Object> description = new HashMap<>();
    description.put("type", error.getClass().getSimpleName());
    description.put("message", String.valueOf(error.getMessage()));
    description.put("causes", causes);
    return description;
  }
}
