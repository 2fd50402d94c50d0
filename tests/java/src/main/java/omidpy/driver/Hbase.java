package omidpy.driver;

import java.io.IOException;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/** The one HBase of this process: {@code hbase.connect} says which, the rest share it. */
final class Hbase {
  private Configuration configuration;
  private Connection connection;

  void register(Map<String, Command> commands) {
    commands.put(
        "hbase.connect",
        request -> {
          connect(request.settings("settings"));
          return null;
        });
  }

  private synchronized void connect(Map<String, String> settings) throws IOException {
    configuration = HBaseConfiguration.create();
    settings.forEach(configuration::set);
    connection = ConnectionFactory.createConnection(configuration);
  }

  synchronized Configuration configuration() {
    if (configuration == null) {
      throw new IllegalStateException("hbase.connect has to come first");
    }
    return configuration;
  }

  synchronized Connection connection() {
    configuration();
    return connection;
  }
}
