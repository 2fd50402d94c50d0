package omidpy.driver;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter;
import org.apache.hadoop.hbase.filter.KeyOnlyFilter;
import org.apache.omid.transaction.HBaseOmidClientConfiguration;
import org.apache.omid.transaction.HBaseTransactionManager;
import org.apache.omid.transaction.RollbackException;
import org.apache.omid.transaction.TTable;
import org.apache.omid.transaction.Transaction;

/**
 * How fast is Omid's client?  The same transaction again and again, from some threads, with nothing
 * of the driver in between.
 */
final class Benchmark {
  private static final byte[] FAMILY = {'f'};

  private final Hbase hbase;
  private final Map<String, HBaseTransactionManager> managers = new ConcurrentHashMap<>();

  /** What a transaction does between its begin and its commit. */
  @FunctionalInterface
  private interface Work {
    void run(TTable table, Transaction transaction) throws IOException;
  }

  Benchmark(Hbase hbase) {
    this.hbase = hbase;
  }

  void register(Map<String, Command> commands) {
    commands.put("bench.open", this::open);
    commands.put("bench.close", this::close);
    commands.put("bench.fill", this::fill);
    commands.put("bench.run", this::run);
    commands.put("bench.scan", this::scan);
    commands.put("bench.count", this::count);
    commands.put("bench.bare", this::bare);
  }

  private Object open(Request request) throws Exception {
    HBaseOmidClientConfiguration configuration = new HBaseOmidClientConfiguration();
    configuration.setHBaseConfiguration(hbase.configuration());
    configuration.setOmidClientConfiguration(OracleClients.configuration(request));
    configuration.setCommitTableName(request.text("commit_table"));
    managers.put(
        request.text("manager"),
        (HBaseTransactionManager) HBaseTransactionManager.newInstance(configuration));
    return null;
  }

  private Object close(Request request) throws IOException {
    managers.remove(request.text("manager")).close();
    return null;
  }

  private TTable table(Request request, HBaseTransactionManager manager) throws IOException {
    return new TTable(
        hbase.connection(), request.text("table").getBytes(), manager.getCommitTableClient());
  }

  private static byte[] key(long number) {
    return String.format("%012d", number).getBytes();
  }

  /** Write rows of {@code columns} cells, {@code batch} in a transaction. */
  private Object fill(Request request) throws Exception {
    HBaseTransactionManager manager = managers.get(request.text("manager"));
    byte[] value = new byte[request.number("value_bytes", 100)];
    long rows = request.number("rows");
    int batch = request.number("batch", 500);
    try (TTable table = table(request, manager)) {
      for (long first = 0; first < rows; first += batch) {
        Transaction transaction = manager.begin();
        List<Put> puts = new ArrayList<>();
        for (long number = first; number < Math.min(rows, first + batch); number++) {
          Put put = new Put(key(number));
          for (int column = 0; column < request.number("columns", 1); column++) {
            put.addColumn(FAMILY, Integer.toString(column).getBytes(), value);
          }
          puts.add(put);
        }
        table.put(transaction, puts);
        manager.commit(transaction);
      }
    }
    return null;
  }

  /** The latencies in ns of every transaction that all threads committed within the time. */
  private Object run(Request request) throws Exception {
    HBaseTransactionManager manager = managers.get(request.text("manager"));
    Work work = work(request);
    return together(
        request,
        deadline -> {
          try (TTable table = table(request, manager)) {
            return committed(manager, table, work, deadline.get());
          }
        });
  }

  /** The latencies in ns of puts or gets of one row each, without transactions. */
  private Object bare(Request request) throws Exception {
    byte[] value = new byte[request.number("value_bytes", 100)];
    long keys = request.number("keys");
    boolean isPut = request.text("kind").equals("put");
    return together(
        request,
        deadline -> {
          TableName name = TableName.valueOf(request.text("table"));
          try (Table table = hbase.connection().getTable(name)) {
            List<Long> latencies = new ArrayList<>();
            long end = deadline.get();
            for (long began = System.nanoTime(); began < end; began = System.nanoTime()) {
              byte[] key = key(ThreadLocalRandom.current().nextLong(keys));
              if (isPut) {
                table.put(new Put(key).addColumn(FAMILY, new byte[] {'0'}, value));
              } else if (table.get(new Get(key)).isEmpty()) {
                throw new IllegalStateException("a row that was written is not there");
              }
              latencies.add(System.nanoTime() - began);
            }
            return latencies;
          }
        });
  }

  /** What one thread does until a deadline, which it asks for when it is ready. */
  @FunctionalInterface
  private interface Loop {
    List<Long> run(Deadline deadline) throws Exception;
  }

  /** When to end; whoever asks waits until all others do. */
  @FunctionalInterface
  private interface Deadline {
    long get() throws Exception;
  }

  /** All latencies of a loop that some threads run at the same time. */
  private static List<Long> together(Request request, Loop work) throws Exception {
    int threads = request.number("threads", 1);
    long duration = request.number("ms") * 1_000_000;
    CyclicBarrier barrier = new CyclicBarrier(threads);
    Callable<List<Long>> loop =
        () ->
            work.run(
                () -> {
                  barrier.await();
                  return System.nanoTime() + duration;
                });
    ExecutorService executor = Executors.newFixedThreadPool(threads);
    List<Long> latencies = new ArrayList<>();
    try {
      for (Future<List<Long>> found : executor.invokeAll(Collections.nCopies(threads, loop))) {
        latencies.addAll(found.get());
      }
    } finally {
      executor.shutdown();
    }
    return latencies;
  }

  private static List<Long> committed(
      HBaseTransactionManager manager, TTable table, Work work, long deadline) throws Exception {
    List<Long> latencies = new ArrayList<>();
    for (long began = System.nanoTime(); began < deadline; began = System.nanoTime()) {
      Transaction transaction = manager.begin();
      work.run(table, transaction);
      try {
        manager.commit(transaction);
        latencies.add(System.nanoTime() - began);
      } catch (RollbackException conflict) {
        // Random keys met: it is no commit, and is not counted.
      }
    }
    return latencies;
  }

  private static Work work(Request request) {
    byte[] value = new byte[request.number("value_bytes", 100)];
    int rows = request.number("rows", 1);
    long keys = request.number("keys");
    return switch (request.text("kind")) {
      case "put" ->
          (table, transaction) -> {
            List<Put> puts = new ArrayList<>(rows);
            for (int row = 0; row < rows; row++) {
              byte[] key = key(ThreadLocalRandom.current().nextLong(keys));
              puts.add(new Put(key).addColumn(FAMILY, new byte[] {'0'}, value));
            }
            if (rows == 1) {
              table.put(transaction, puts.get(0));
            } else {
              table.put(transaction, puts);
            }
          };
      case "get" ->
          (table, transaction) -> {
            List<Get> gets = new ArrayList<>(rows);
            for (int row = 0; row < rows; row++) {
              gets.add(new Get(key(ThreadLocalRandom.current().nextLong(keys))));
            }
            for (Result result : table.get(transaction, gets)) {
              if (result.isEmpty()) {
                throw new IllegalStateException("a row that was written is not there");
              }
            }
          };
      default -> throw new IllegalArgumentException("no such kind of work: " + request);
    };
  }

  /**
   * How long it takes to count a table without transactions, in ns, and how many rows and cells came:
   * every version of every cell, or with {@code keys} what HBase's RowCounter asks for, which is the
   * first key of each row.
   */
  private Object count(Request request) throws IOException {
    Scan scan = new Scan().setCaching(request.number("caching", 1000)).setCacheBlocks(false);
    if (request.flag("keys")) {
      scan.setFilter(new FilterList(new FirstKeyOnlyFilter(), new KeyOnlyFilter()));
    } else {
      scan.readAllVersions();
    }
    try (Table table = hbase.connection().getTable(TableName.valueOf(request.text("table")))) {
      long began = System.nanoTime();
      long rows = 0;
      long cells = 0;
      try (ResultScanner scanner = table.getScanner(scan)) {
        for (Result result = scanner.next(); result != null; result = scanner.next()) {
          rows++;
          cells += result.size();
        }
      }
      return List.of(System.nanoTime() - began, rows, cells);
    }
  }

  /** How long a scan of the table takes in a transaction, in ns, and how many rows it saw. */
  private Object scan(Request request) throws Exception {
    HBaseTransactionManager manager = managers.get(request.text("manager"));
    try (TTable table = table(request, manager)) {
      long began = System.nanoTime();
      long rows = 0;
      Transaction transaction = manager.begin();
      Scan scan = new Scan().setCaching(request.number("caching", 1000));
      try (ResultScanner scanner = table.getScanner(transaction, scan)) {
        while (scanner.next() != null) {
          rows++;
        }
      }
      manager.commit(transaction);
      return List.of(System.nanoTime() - began, rows);
    }
  }
}
