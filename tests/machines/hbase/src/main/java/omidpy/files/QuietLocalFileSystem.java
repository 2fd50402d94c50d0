package omidpy.files;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermission;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local files, whose permissions this process sets by itself.
 *
 * <p>Hadoop's own runs {@code chmod} for each file and folder that it makes, wherever its native
 * library is not there: fifteen times for a table that is made and dropped, which is a seventh of
 * all the processor time of an HBase that tests use.
 */
public final class QuietLocalFileSystem extends LocalFileSystem {
  /** For Hadoop, which makes it by the name of its class. */
  public QuietLocalFileSystem() {
    super(new Raw());
  }

  private static final class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      Set<PosixFilePermission> granted = EnumSet.noneOf(PosixFilePermission.class);
      for (PosixFilePermission one : PosixFilePermission.values()) {
        // They come in the order of the bits, from the owner's to read to the others' to execute.
        if ((permission.toShort() & 0400 >> one.ordinal()) != 0) {
          granted.add(one);
        }
      }
      Files.setPosixFilePermissions(pathToFile(path).toPath(), granted);
    }
  }
}
