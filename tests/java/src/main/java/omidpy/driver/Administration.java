package omidpy.driver;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.exceptions.MergeRegionException;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.omid.tools.hbase.OmidTableManager;

/** What only Java's interface to HBase can do to tables and regions. */
final class Administration {
  private static final long PATIENCE_MS = 120_000;
  private static final long POLL_MS = 50;

  private final Hbase hbase;

  /** A question that is asked until the answer is yes. */
  @FunctionalInterface
  private interface Question {
    boolean holds() throws Exception;
  }

  Administration(Hbase hbase) {
    this.hbase = hbase;
  }

  void register(Map<String, Command> commands) {
    commands.put("admin.init", this::init);
    commands.put("admin.create", this::create);
    commands.put("admin.drop", this::drop);
    commands.put("admin.tables", request -> tables());
    commands.put("admin.regions", this::regions);
    commands.put("admin.split", this::split);
    commands.put("admin.merge", this::merge);
    commands.put("admin.move", this::move);
    commands.put("admin.close", this::close);
    commands.put("admin.open", this::open);
    commands.put("admin.flush", this::flush);
    commands.put("admin.major_compact", this::majorCompact);
    commands.put("admin.snapshot", this::snapshot);
    commands.put("admin.restore", this::restore);
    commands.put("admin.restore_in_place", this::restoreInPlace);
    commands.put("admin.delete_snapshot", this::deleteSnapshot);
    commands.put("admin.raw", this::raw);
  }

  private Admin admin() throws IOException {
    return hbase.connection().getAdmin();
  }

  private static TableName table(Request request) {
    return TableName.valueOf(request.text("table"));
  }

  private static void await(String what, Question question) throws Exception {
    long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
    while (!question.holds()) {
      if (System.nanoTime() > deadline) {
        throw new IllegalStateException(what + " has not happened in " + PATIENCE_MS + " ms");
      }
      Thread.sleep(POLL_MS);
    }
  }

  /** Omid's own tool makes Omid's own tables; those that exist are left alone. */
  private Object init(Request request) throws IOException {
    for (String command : List.of("commit-table", "timestamp-table")) {
      new OmidTableManager(command).executeActionsOnHBase(hbase.configuration());
    }
    return null;
  }

  /** A table as Omid's users make it: every version kept. */
  private Object create(Request request) throws IOException {
    TableDescriptorBuilder descriptor = TableDescriptorBuilder.newBuilder(table(request));
    for (byte[] family : request.byteStrings("families")) {
      ColumnFamilyDescriptorBuilder builder =
          ColumnFamilyDescriptorBuilder.newBuilder(family)
              .setMaxVersions(request.number("versions", Integer.MAX_VALUE));
      request
          .settings("attributes")
          .forEach((key, value) -> builder.setValue(Bytes.toBytes(key), Bytes.toBytes(value)));
      descriptor.setColumnFamily(builder.build());
    }
    byte[][] splits = request.byteStrings("splits").toArray(new byte[0][]);
    try (Admin admin = admin()) {
      if (splits.length == 0) {
        admin.createTable(descriptor.build());
      } else {
        admin.createTable(descriptor.build(), splits);
      }
    }
    return null;
  }

  private Object drop(Request request) throws IOException {
    try (Admin admin = admin()) {
      if (admin.isTableEnabled(table(request))) {
        admin.disableTable(table(request));
      }
      admin.deleteTable(table(request));
    }
    return null;
  }

  private Object tables() throws IOException {
    try (Admin admin = admin()) {
      List<String> names = new ArrayList<>();
      for (TableName name : admin.listTableNames()) {
        names.add(name.getNameAsString());
      }
      return names;
    }
  }

  private Object regions(Request request) throws IOException {
    try (Admin admin = admin()) {
      List<List<String>> regions = new ArrayList<>();
      for (RegionInfo region : admin.getRegions(table(request))) {
        regions.add(
            List.of(
                Request.hex(region.getStartKey()),
                Request.hex(region.getEndKey()),
                region.getEncodedName()));
      }
      return regions;
    }
  }

  private Object split(Request request) throws Exception {
    try (Admin admin = admin()) {
      int before = admin.getRegions(table(request)).size();
      admin.split(table(request), request.bytes("at"));
      await("the split", () -> admin.getRegions(table(request)).size() > before);
      await("the opening of its parts", () -> admin.isTableAvailable(table(request)));
    }
    return null;
  }

  /** Merge the first two regions. */
  private Object merge(Request request) throws Exception {
    try (Admin admin = admin()) {
      int before = admin.getRegions(table(request)).size();
      // Parts of a region that was split share its files until they have files of their own; the
      // shared ones go when a region is closed, and otherwise after minutes.
      majorCompact(request);
      move(request);
      await(
          "the merge",
          () -> {
            List<RegionInfo> regions = admin.getRegions(table(request));
            byte[][] names = {
              regions.get(0).getEncodedNameAsBytes(), regions.get(1).getEncodedNameAsBytes()
            };
            try {
              admin.mergeRegionsAsync(names, false).get();
            } catch (ExecutionException error) {
              if (!(error.getCause() instanceof MergeRegionException)) {
                throw error;
              }
              // The catalogue keeps what a region was merged from until its janitor has seen that
              // no file is shared any more; by itself it looks every five minutes.
              admin.runCatalogJanitor();
            }
            return admin.getRegions(table(request)).size() < before;
          });
      await("the opening of the whole", () -> admin.isTableAvailable(table(request)));
    }
    return null;
  }

  /** Let nobody serve the region that holds a key. */
  private Object close(Request request) throws IOException {
    try (Admin admin = admin()) {
      admin.unassign(regionAt(admin, request).getRegionName());
    }
    return null;
  }

  /** Let somebody serve it again. */
  private Object open(Request request) throws IOException {
    try (Admin admin = admin()) {
      admin.assign(regionAt(admin, request).getRegionName());
    }
    return null;
  }

  private RegionInfo regionAt(Admin admin, Request request) throws IOException {
    for (RegionInfo region : admin.getRegions(table(request))) {
      if (region.containsRow(request.bytes("at"))) {
        return region;
      }
    }
    throw new IllegalStateException("the regions of a table hold every key");
  }

  /** Close every region of a table, and open it on another server, or on the only one. */
  private Object move(Request request) throws Exception {
    try (Admin admin = admin()) {
      boolean isAlone = admin.getRegionServers().size() == 1;
      List<Callable<Object>> moves = new ArrayList<>();
      for (RegionInfo region : admin.getRegions(table(request))) {
        moves.add(
            () -> {
              if (isAlone) {
                // HBase skips a move to where a region is.
                admin.unassign(region.getRegionName());
                admin.assign(region.getRegionName());
              } else {
                admin.move(region.getEncodedNameAsBytes());
              }
              return null;
            });
      }
      // A move is a second of waiting, whatever else moves.
      ExecutorService together = Executors.newFixedThreadPool(Math.max(1, moves.size()));
      try {
        for (Future<Object> moved : together.invokeAll(moves)) {
          moved.get();
        }
      } finally {
        together.shutdownNow();
      }
    }
    return null;
  }

  private Object flush(Request request) throws IOException {
    try (Admin admin = admin()) {
      admin.flush(table(request));
    }
    return null;
  }

  /** Flush, then rewrite all files into one, in which no delete marker is left. */
  private Object majorCompact(Request request) throws Exception {
    try (Admin admin = admin()) {
      admin.flush(table(request));
      admin.majorCompact(table(request));
      await("the compaction", () -> areWhole(admin, table(request)));
    }
    return null;
  }

  /** Whether each region has one file of each family at most, made by a major compaction. */
  private static boolean areWhole(Admin admin, TableName table) throws IOException {
    int families = admin.getDescriptor(table).getColumnFamilyCount();
    for (ServerName server : admin.getRegionServers()) {
      for (RegionMetrics region : admin.getRegionMetrics(server, table)) {
        boolean isCompacted = region.getLastMajorCompactionTimestamp() > 0;
        int files = region.getStoreFileCount();
        if (files > families || files > 0 && !isCompacted) {
          return false;
        }
      }
    }
    return true;
  }

  private Object snapshot(Request request) throws IOException {
    try (Admin admin = admin()) {
      admin.snapshot(request.text("name"), table(request));
    }
    return null;
  }

  private Object restore(Request request) throws IOException {
    try (Admin admin = admin()) {
      admin.cloneSnapshot(request.text("name"), table(request));
    }
    return null;
  }

  /** Turn a table back to what it was. */
  private Object restoreInPlace(Request request) throws IOException {
    try (Admin admin = admin()) {
      admin.disableTable(table(request));
      admin.restoreSnapshot(request.text("name"));
      admin.enableTable(table(request));
    }
    return null;
  }

  private Object deleteSnapshot(Request request) throws IOException {
    try (Admin admin = admin()) {
      admin.deleteSnapshot(request.text("name"));
    }
    return null;
  }

  /** Every cell of a table, delete markers and what they hide included. */
  private Object raw(Request request) throws IOException {
    List<List<Object>> cells = new ArrayList<>();
    Scan scan = new Scan().readAllVersions().setRaw(true);
    try (Table table = hbase.connection().getTable(table(request));
        ResultScanner scanner = table.getScanner(scan)) {
      for (Result result = scanner.next(); result != null; result = scanner.next()) {
        for (Cell cell : result.rawCells()) {
          List<Object> described = new ArrayList<>();
          described.add(Request.hex(CellUtil.cloneRow(cell)));
          described.addAll(Cells.described(cell));
          described.add(cell.getType().name());
          cells.add(described);
        }
      }
    }
    return cells;
  }
}
