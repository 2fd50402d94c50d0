package omidpy.driver;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.Table;

/**
 * A table of HBase that writes down what is written, and answers reads with what it was given.
 *
 * <p>So the exact cells of Omid's classes are seen without a server.
 */
final class RecordedTable {
  final List<Map<String, Object>> writes = new ArrayList<>();
  private final TableName name;
  private Result result = Result.EMPTY_RESULT;

  RecordedTable(String name) {
    this.name = TableName.valueOf(name);
  }

  /** Answer every get with these cells. */
  void answer(List<Cell> cells) {
    result = Result.create(cells);
  }

  Connection connection() {
    return proxy(
        Connection.class,
        (method, arguments) ->
            switch (method.getName()) {
              case "getTable" -> table();
              case "getConfiguration" -> HBaseConfiguration.create();
              case "close" -> null;
              default -> throw new UnsupportedOperationException(method.toString());
            });
  }

  Table table() {
    return proxy(
        Table.class,
        (method, arguments) ->
            switch (method.getName()) {
              case "getName" -> name;
              case "getConfiguration" -> HBaseConfiguration.create();
              case "get" -> arguments[0] instanceof Get ? result : new Result[0];
              case "put", "delete" -> record(arguments[0], null);
              case "batch" -> record(arguments[0], null);
              case "checkAndMutate" -> check((CheckAndMutate) arguments[0]);
              case "close" -> null;
              default -> throw new UnsupportedOperationException(method.toString());
            });
  }

  private CheckAndMutateResult check(CheckAndMutate check) {
    String condition =
        Request.hex(check.getFamily())
            + ":"
            + Request.hex(check.getQualifier())
            + " "
            + check.getCompareOp()
            + " "
            + (check.getValue() == null ? "absent" : Request.hex(check.getValue()));
    record(check.getAction(), condition);
    return new CheckAndMutateResult(true, null);
  }

  private Object record(Object mutations, String condition) {
    List<?> all = mutations instanceof List ? (List<?>) mutations : List.of(mutations);
    for (Object mutation : all) {
      write((Mutation) mutation, condition);
    }
    return null;
  }

  private void write(Mutation mutation, String condition) {
    Map<String, Object> write = new LinkedHashMap<>();
    write.put("row", Request.hex(mutation.getRow()));
    write.put("kind", mutation.getClass().getSimpleName());
    write.put("condition", condition);
    // Of a delete without columns: the version at or below which all of the row goes.
    write.put("version", mutation.getTimestamp());
    List<List<Object>> cells = new ArrayList<>();
    for (List<Cell> family : mutation.getFamilyCellMap().values()) {
      for (Cell cell : family) {
        cells.add(Cells.described(cell));
      }
    }
    write.put("cells", cells);
    writes.add(write);
  }

  /** What a proxied object does when it is called. */
  @FunctionalInterface
  private interface Behaviour {
    Object call(Method method, Object[] arguments);
  }

  private static <T> T proxy(Class<T> type, Behaviour behaviour) {
    return type.cast(
        Proxy.newProxyInstance(
            type.getClassLoader(),
            new Class<?>[] {type},
            (self, method, arguments) -> behaviour.call(method, arguments)));
  }
}
