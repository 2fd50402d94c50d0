package omidpy.bench;

import org.apache.hadoop.hbase.io.ImmutableBytesWritable;
import org.apache.spark.api.python.Converter;

/** Gives Python the key of a row. */
public final class KeyBytes implements Converter<Object, Object> {
  private static final long serialVersionUID = 1L;

  @Override
  public Object convert(Object key) {
    return ((ImmutableBytesWritable) key).copyBytes();
  }
}
