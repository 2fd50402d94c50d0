package omidpy.driver;

import java.io.IOException;
import org.apache.omid.tso.TSOServer;

/**
 * Omid's own oracle, that ends with its standard input.
 *
 * <p>Its settings are the {@code omid-server-configuration.yml} on the class path.
 */
public final class Oracle {
  private Oracle() {}

  public static void main(String[] arguments) {
    Thread watch = new Thread(Oracle::untilTheEndOfInput, "standard-input");
    watch.setDaemon(true);
    watch.start();
    TSOServer.main(arguments);
  }

  private static void untilTheEndOfInput() {
    try {
      while (System.in.read() >= 0) {
        // Nothing is said to an oracle this way.
      }
    } catch (IOException error) {
      // The end as well.
    }
    Runtime.getRuntime().halt(86);
  }
}
