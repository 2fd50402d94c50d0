package omidpy.driver;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellBuilderFactory;
import org.apache.hadoop.hbase.CellBuilderType;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.client.Result;

/** Cells as tests see them: family, qualifier, version, value. */
final class Cells {
  private Cells() {}

  static List<Object> described(Cell cell) {
    return List.of(
        Request.hex(CellUtil.cloneFamily(cell)),
        Request.hex(CellUtil.cloneQualifier(cell)),
        cell.getTimestamp(),
        Request.hex(CellUtil.cloneValue(cell)));
  }

  static List<List<Object>> described(Result result) {
    List<List<Object>> cells = new ArrayList<>();
    if (result.rawCells() != null) {
      for (Cell cell : result.rawCells()) {
        cells.add(described(cell));
      }
    }
    return cells;
  }

  static Cell put(byte[] row, byte[] family, byte[] qualifier, long version, byte[] value) {
    return CellBuilderFactory.create(CellBuilderType.DEEP_COPY)
        .setRow(row)
        .setFamily(family)
        .setQualifier(qualifier)
        .setTimestamp(version)
        .setType(Cell.Type.Put)
        .setValue(value)
        .build();
  }
}
