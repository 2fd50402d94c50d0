package omidpy.driver;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.protobuf.Message;
import com.google.protobuf.TextFormat;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.omid.committable.CommitTable;
import org.apache.omid.committable.hbase.HBaseCommitTable;
import org.apache.omid.committable.hbase.HBaseCommitTableConfig;
import org.apache.omid.committable.hbase.KeyGenerator;
import org.apache.omid.committable.hbase.KeyGeneratorImplementations;
import org.apache.omid.proto.TSOProto;
import org.apache.omid.tools.hbase.OmidTableManager;
import org.apache.omid.transaction.CellUtils;
import org.apache.omid.transaction.HBaseCellId;
import org.apache.omid.transaction.TTable;

/** The bytes of every format, made and read by the classes of Apache Omid, without a server. */
final class Golden {
  private static final String COMMIT_TABLE = HBaseCommitTableConfig.DEFAULT_COMMIT_TABLE_NAME;

  private Golden() {}

  static void register(Map<String, Command> commands) {
    registerQualifiers(commands);
    registerCommitTable(commands);
    commands.put("golden.message", Golden::message);
    commands.put("golden.read_message", Golden::readMessage);
    commands.put("golden.constants", request -> constants());
  }

  private static void registerQualifiers(Map<String, Command> commands) {
    commands.put(
        "golden.shadow_qualifier",
        request -> Request.hex(CellUtils.addShadowCellSuffixPrefix(request.bytes("qualifier"))));
    commands.put(
        "golden.data_qualifier",
        request -> {
          byte[] qualifier = request.bytes("qualifier");
          return Request.hex(
              CellUtils.removeShadowCellSuffixPrefix(qualifier, 0, qualifier.length));
        });
    commands.put(
        "golden.cell",
        request -> {
          Cell cell =
              Cells.put(
                  new byte[] {1},
                  new byte[] {'f'},
                  request.bytes("qualifier"),
                  1,
                  request.bytes("value"));
          return Map.of(
              "is_shadow", CellUtils.isShadowCell(cell),
              "is_tombstone", CellUtils.isTombstone(cell),
              "is_family_marker", CellUtils.isFamilyDeleteCell(cell));
        });
    commands.put("golden.cell_ids", Golden::cellIds);
  }

  private static Object cellIds(Request request) throws Exception {
    RecordedTable recorded = new RecordedTable(request.text("table"));
    TTable table = new TTable(recorded.table(), commitTable(recorded).getClient());
    HBaseCellId cell =
        new HBaseCellId(
            table,
            request.bytes("row"),
            request.bytes("family"),
            request.bytes("qualifier"),
            1000L);
    return Map.of("cell", cell.getCellId(), "row", cell.getRowId(), "table", cell.getTableId());
  }

  private static void registerCommitTable(Map<String, Command> commands) {
    KeyGenerator keys = KeyGeneratorImplementations.defaultKeyGenerator();
    commands.put(
        "golden.commit_row",
        request -> Request.hex(keys.startTimestampToKey(request.number("start"))));
    commands.put(
        "golden.start_of_commit_row", request -> keys.keyToStartTimestamp(request.bytes("row")));
    commands.put("golden.commit_regions", Golden::commitRegions);
    commands.put("golden.write_commit_table", Golden::writeCommitTable);
    commands.put("golden.read_commit_entry", Golden::readCommitEntry);
    commands.put(
        "golden.read_low_watermark",
        request -> {
          RecordedTable recorded = recorded(request);
          return commitTable(recorded).getClient().readLowWatermark().get();
        });
  }

  private static CommitTable commitTable(RecordedTable recorded) throws Exception {
    return new HBaseCommitTable(recorded.connection(), new HBaseCommitTableConfig());
  }

  /** The cells that Omid writes into its commit table for one step of a transaction's life. */
  private static Object writeCommitTable(Request request) throws Exception {
    RecordedTable recorded = new RecordedTable(COMMIT_TABLE);
    CommitTable table = commitTable(recorded);
    CommitTable.Writer writer = table.getWriter();
    switch (request.text("step")) {
      case "commit" -> {
        writer.addCommittedTransaction(request.number("start"), request.number("commit"));
        writer.flush();
      }
      case "commit_at_once" ->
          writer.atomicAddCommittedTransaction(request.number("start"), request.number("commit"));
      case "low_watermark" -> {
        writer.updateLowWatermark(request.number("start"));
        writer.flush();
      }
      case "invalidate" ->
          table.getClient().tryInvalidateTransaction(request.number("start")).get();
      case "complete" -> table.getClient().deleteCommitEntry(request.number("start")).get();
      default -> throw new IllegalArgumentException(request.text("step"));
    }
    return recorded.writes;
  }

  /** A table that holds the one row of the request. */
  private static RecordedTable recorded(Request request) {
    RecordedTable recorded = new RecordedTable(COMMIT_TABLE);
    List<Cell> cells = new ArrayList<>();
    for (JsonElement item : request.list("cells")) {
      JsonArray cell = item.getAsJsonArray();
      cells.add(
          Cells.put(
              request.bytes("row"),
              Request.unhex(cell.get(0).getAsString()),
              Request.unhex(cell.get(1).getAsString()),
              cell.get(2).getAsLong(),
              Request.unhex(cell.get(3).getAsString())));
    }
    recorded.answer(cells);
    return recorded;
  }

  private static Object readCommitEntry(Request request) throws Exception {
    CommitTable.Client client = commitTable(recorded(request)).getClient();
    var found = client.getCommitTimestamp(request.number("start")).get();
    Map<String, Object> entry = new LinkedHashMap<>();
    entry.put("is_present", found.isPresent());
    entry.put("is_valid", found.isPresent() && found.get().isValid());
    entry.put("commit", found.isPresent() ? found.get().getValue() : null);
    return entry;
  }

  /** Omid's tool keeps the keys between its regions to itself. */
  private static Object commitRegions(Request request) throws Exception {
    Method split =
        OmidTableManager.class.getDeclaredMethod(
            "splitInUniformRegions", Configuration.class, int.class);
    split.setAccessible(true);
    Configuration configuration = new Configuration(false);
    byte[][] keys = (byte[][]) split.invoke(null, configuration, request.number("regions", 16));
    return Arrays.stream(keys).map(Request::hex).toList();
  }

  private static Message.Builder builder(String type) {
    return switch (type) {
      case "Request" -> TSOProto.Request.newBuilder();
      case "Response" -> TSOProto.Response.newBuilder();
      case "Transaction" -> TSOProto.Transaction.newBuilder();
      default -> throw new IllegalArgumentException(type);
    };
  }

  private static Object message(Request request) throws Exception {
    Message.Builder builder = builder(request.text("type"));
    TextFormat.merge(request.text("text"), builder);
    return Request.hex(builder.build().toByteArray());
  }

  private static Object readMessage(Request request) throws Exception {
    Message message = builder(request.text("type")).mergeFrom(request.bytes("bytes")).build();
    return TextFormat.printToString(message);
  }

  private static Object constants() throws Exception {
    HBaseCommitTableConfig commitTable = new HBaseCommitTableConfig();
    var timestamps = new org.apache.omid.timestamp.storage.HBaseTimestampStorageConfig();
    Map<String, Object> constants = new LinkedHashMap<>();
    constants.put("commit_table", commitTable.getTableName());
    constants.put("commit_family", Request.hex(commitTable.getCommitTableFamily()));
    constants.put("low_watermark_family", Request.hex(commitTable.getLowWatermarkFamily()));
    constants.put("timestamp_table", timestamps.getTableName());
    constants.put("timestamp_family", timestamps.getFamilyName());
    for (String name : List.of("TSO_ROW", "TSO_QUALIFIER")) {
      constants.put(name, hidden("timestamp.storage.HBaseTimestampStorage", name));
    }
    constants.put("transaction_attribute", CellUtils.TRANSACTION_ATTRIBUTE);
    constants.put("client_get_attribute", CellUtils.CLIENT_GET_ATTRIBUTE);
    constants.put("low_latency_attribute", CellUtils.LL_ATTRIBUTE);
    return constants;
  }

  private static String hidden(String type, String name) throws Exception {
    var field = Class.forName("org.apache.omid." + type).getDeclaredField(name);
    field.setAccessible(true);
    return Request.hex((byte[]) field.get(null));
  }
}
