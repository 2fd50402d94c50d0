package omidpy.driver;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.apache.hadoop.hbase.util.Bytes;

/** Makes each kind of call once, so that somebody between client and server may keep its frames. */
final class Frames {
  private static final TableName TABLE = TableName.valueOf("frames");
  private static final byte[] FAMILY = Bytes.toBytes("cf");
  private static final byte[] QUALIFIER = Bytes.toBytes("q");

  private final Hbase hbase;

  Frames(Hbase hbase) {
    this.hbase = hbase;
  }

  void register(Map<String, Command> commands) {
    commands.put("frames.play", request -> play());
  }

  private Object play() throws IOException {
    try (Admin admin = hbase.connection().getAdmin();
        Table table = hbase.connection().getTable(TABLE)) {
      admin.createTable(
          TableDescriptorBuilder.newBuilder(TABLE)
              .setColumnFamily(
                  ColumnFamilyDescriptorBuilder.newBuilder(FAMILY).setMaxVersions(3).build())
              .setValue("NOTE", "golden")
              .build(),
          new byte[][] {Bytes.toBytes("m")});
      admin.getDescriptor(TABLE);
      change(table);
      read(table);
      admin.disableTable(TABLE);
      admin.isTableDisabled(TABLE);
      admin.deleteTable(TABLE);
    }
    return null;
  }

  private static void change(Table table) throws IOException {
    table.put(put("a", 5, "one"));
    table.put(List.of(put("b", 5, "two"), put("z", 5, "three")));
    table.delete(new Delete(row("b")).addColumn(FAMILY, QUALIFIER, 5));
    table.delete(new Delete(row("b")).addColumns(FAMILY, QUALIFIER, 4));
    table.delete(new Delete(row("b")).addFamily(FAMILY, 3));
    for (String expected : new String[] {"one", "another"}) {
      table.checkAndMutate(
          CheckAndMutate.newBuilder(row("a"))
              .ifMatches(FAMILY, QUALIFIER, CompareOperator.EQUAL, Bytes.toBytes(expected))
              .build(put("a", 6, "four")));
    }
    table.checkAndMutate(
        CheckAndMutate.newBuilder(row("c"))
            .ifNotExists(FAMILY, QUALIFIER)
            .build(put("c", 5, "five")));
    table.mutateRow(
        RowMutations.of(
            Arrays.asList(
                put("c", 7, "six"), new Delete(row("c")).addColumn(FAMILY, QUALIFIER, 5))));
    table.incrementColumnValue(row("n"), FAMILY, QUALIFIER, 7);
    try {
      table.put(new Put(row("a")).addColumn(Bytes.toBytes("no"), QUALIFIER, 1, row("v")));
      throw new IllegalStateException("a family that is not there was written");
    } catch (NoSuchColumnFamilyException expected) {
      // Its frame is one of those that are wanted.
    }
  }

  private static void read(Table table) throws IOException {
    table.get(new Get(row("a")).readVersions(2));
    table.get(new Get(row("none")));
    table.exists(new Get(row("a")));
    table.get(List.of(new Get(row("a")), new Get(row("z")), new Get(row("none"))));
    Scan scan = new Scan().withStartRow(row("a")).withStopRow(row("n")).readVersions(2);
    try (ResultScanner found = table.getScanner(scan)) {
      for (Result result : found) {
        result.isEmpty();
      }
    }
    try (ResultScanner found = table.getScanner(new Scan().setReversed(true).setLimit(2))) {
      for (Result result : found) {
        result.isEmpty();
      }
    }
  }

  private static Put put(String row, long version, String value) {
    return new Put(row(row)).addColumn(FAMILY, QUALIFIER, version, Bytes.toBytes(value));
  }

  private static byte[] row(String text) {
    return Bytes.toBytes(text);
  }
}
