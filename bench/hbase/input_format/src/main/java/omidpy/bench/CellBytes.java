package omidpy.bench;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.client.Result;
import org.apache.spark.api.python.Converter;

/** Gives Python the cells of a row: qualifier, value, qualifier, value, and so on. */
public final class CellBytes implements Converter<Object, Object> {
  private static final long serialVersionUID = 1L;

  @Override
  public Object convert(Object row) {
    List<byte[]> found = new ArrayList<>();
    for (Cell cell : ((Result) row).rawCells()) {
      found.add(CellUtil.cloneQualifier(cell));
      found.add(CellUtil.cloneValue(cell));
    }
    return found;
  }
}
