package omidpy.driver;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.omid.committable.CommitTable;
import org.apache.omid.committable.hbase.HBaseCommitTable;
import org.apache.omid.committable.hbase.HBaseCommitTableConfig;
import org.apache.omid.transaction.AbstractTransaction;
import org.apache.omid.transaction.HBaseOmidClientConfiguration;
import org.apache.omid.transaction.HBaseTransactionManager;
import org.apache.omid.transaction.TTable;
import org.apache.omid.transaction.Transaction;
import org.apache.omid.tso.client.TSOClient;

/** Omid's transaction managers and transactions, by name. */
final class Transactions {
  private final Hbase hbase;
  private final Map<String, Manager> managers = new ConcurrentHashMap<>();
  private final Map<String, Open> transactions = new ConcurrentHashMap<>();

  private record Manager(HBaseTransactionManager omid, Mortality mortality) {}

  private record Open(Manager manager, Transaction omid) {
    AbstractTransaction<?> detailed() {
      return (AbstractTransaction<?>) omid;
    }
  }

  Transactions(Hbase hbase) {
    this.hbase = hbase;
  }

  void register(Map<String, Command> commands) {
    commands.put("tm.open", this::open);
    commands.put("tm.close", this::close);
    commands.put("tm.dies", this::dies);
    commands.put("tm.fence", this::fence);
    commands.put("tm.low_watermark", request -> manager(request).omid().getLowWatermark());
    commands.put("tx.begin", this::begin);
    commands.put("tx.put", this::put);
    commands.put("tx.delete", this::delete);
    commands.put("tx.get", this::get);
    commands.put("tx.scan", this::scan);
    commands.put("tx.checkpoint", this::checkpoint);
    commands.put("tx.rollback_only", this::rollbackOnly);
    commands.put("tx.commit", this::commit);
    commands.put("tx.rollback", this::rollback);
  }

  private Manager manager(Request request) {
    return managers.get(request.text("manager"));
  }

  private Open transaction(Request request) {
    Open open = transactions.get(request.text("tx"));
    if (open == null) {
      throw new IllegalArgumentException("no transaction is called " + request.text("tx"));
    }
    return open;
  }

  private Object open(Request request) throws Exception {
    HBaseOmidClientConfiguration configuration = new HBaseOmidClientConfiguration();
    configuration.setHBaseConfiguration(hbase.configuration());
    configuration.setOmidClientConfiguration(OracleClients.configuration(request));
    Mortality mortality = new Mortality();
    CommitTable.Client commits =
        new HBaseCommitTable(hbase.connection(), new HBaseCommitTableConfig()).getClient();
    HBaseTransactionManager manager =
        HBaseTransactionManager.builder(configuration)
            .tsoClient(
                mortality.oracle(TSOClient.newInstance(configuration.getOmidClientConfiguration())))
            .commitTableClient(mortality.commitTable(commits))
            .build();
    managers.put(request.text("manager"), new Manager(manager, mortality));
    return null;
  }

  private Object close(Request request) throws IOException {
    managers.remove(request.text("manager")).omid().close();
    return null;
  }

  private Object dies(Request request) {
    Mortality.Point point = Mortality.Point.valueOf(request.text("point").toUpperCase());
    manager(request).mortality().schedule(point, request.flag("ends_process"));
    return null;
  }

  private Object began(Request request, Manager manager, Transaction transaction) {
    Open open = new Open(manager, transaction);
    transactions.put(request.text("tx"), open);
    AbstractTransaction<?> detailed = open.detailed();
    return Map.of("start", detailed.getStartTimestamp(), "epoch", detailed.getEpoch());
  }

  private Object begin(Request request) throws Exception {
    Manager manager = manager(request);
    return began(request, manager, manager.omid().begin());
  }

  private Object fence(Request request) throws Exception {
    Manager manager = manager(request);
    return began(request, manager, manager.omid().fence(request.text("table").getBytes()));
  }

  private TTable table(Request request, Open open) throws IOException {
    return new TTable(
        hbase.connection(),
        request.text("table").getBytes(),
        open.manager().omid().getCommitTableClient(),
        request.flag("is_conflict_free"));
  }

  private Object put(Request request) throws IOException {
    Open open = transaction(request);
    Put put = new Put(request.bytes("row"));
    for (byte[][] cell : request.tuples("cells")) {
      put.addColumn(cell[0], cell[1], cell[2]);
    }
    try (TTable table = table(request, open)) {
      table.put(open.omid(), put, request.flag("autocommits"));
    }
    return null;
  }

  /** Without columns and families the whole row goes. */
  private Object delete(Request request) throws IOException {
    Open open = transaction(request);
    Delete delete = new Delete(request.bytes("row"));
    request.tuples("columns").forEach(column -> delete.addColumns(column[0], column[1]));
    request.byteStrings("families").forEach(delete::addFamily);
    try (TTable table = table(request, open)) {
      table.delete(open.omid(), delete);
    }
    return null;
  }

  private Object get(Request request) throws IOException {
    Open open = transaction(request);
    Get get = new Get(request.bytes("row"));
    request.tuples("columns").forEach(column -> get.addColumn(column[0], column[1]));
    try (TTable table = table(request, open)) {
      return Cells.described(table.get(open.omid(), get));
    }
  }

  private Object scan(Request request) throws IOException {
    Open open = transaction(request);
    Scan scan = new Scan();
    if (request.has("start")) {
      scan.withStartRow(request.bytes("start"));
    }
    if (request.has("stop")) {
      scan.withStopRow(request.bytes("stop"));
    }
    request.byteStrings("families").forEach(scan::addFamily);
    List<List<Object>> rows = new ArrayList<>();
    try (TTable table = table(request, open);
        ResultScanner scanner = table.getScanner(open.omid(), scan)) {
      for (Result result = scanner.next(); result != null; result = scanner.next()) {
        rows.add(List.of(Request.hex(result.getRow()), Cells.described(result)));
      }
    }
    return rows;
  }

  private Object checkpoint(Request request) throws Exception {
    AbstractTransaction<?> transaction = transaction(request).detailed();
    transaction.checkpoint();
    // What is written next is seen again; a checkpoint alone hides it from its own transaction.
    return transaction.getWriteTimestamp();
  }

  private Object rollbackOnly(Request request) {
    transaction(request).omid().setRollbackOnly();
    return null;
  }

  private Object commit(Request request) throws Exception {
    Open open = transaction(request);
    open.manager().omid().commit(open.omid());
    return ended(request);
  }

  private Object rollback(Request request) throws Exception {
    Open open = transaction(request);
    open.manager().omid().rollback(open.omid());
    return ended(request);
  }

  private Object ended(Request request) {
    AbstractTransaction<?> transaction = transactions.remove(request.text("tx")).detailed();
    return Map.of(
        "status", transaction.getStatus().toString(), "commit", transaction.getCommitTimestamp());
  }
}
