package omidpy.driver;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.omid.tso.client.CellId;
import org.apache.omid.tso.client.OmidClientConfiguration;
import org.apache.omid.tso.client.OmidClientConfiguration.ConflictDetectionLevel;
import org.apache.omid.tso.client.OmidClientConfiguration.ConnType;
import org.apache.omid.tso.client.OmidClientConfiguration.PostCommitMode;
import org.apache.omid.tso.client.TSOClient;

/** Omid's own clients of an oracle, by name: the protocol alone, without HBase. */
final class OracleClients {
  private static final Map<String, TSOClient> CLIENTS = new ConcurrentHashMap<>();

  private OracleClients() {}

  /** A cell as the oracle sees it: three numbers. */
  private record Ids(long getCellId, long getRowId, long getTableId) implements CellId {}

  static void register(Map<String, Command> commands) {
    commands.put(
        "tso.open",
        request -> {
          TSOClient client = TSOClient.newInstance(configuration(request));
          CLIENTS.put(request.text("client"), client);
          return null;
        });
    commands.put("tso.begin", request -> client(request).getNewStartTimestamp().get());
    commands.put(
        "tso.commit",
        request ->
            client(request)
                .commit(request.number("start"), cells(request, "cells"), cells(request, "free"))
                .get());
    commands.put("tso.fence", request -> client(request).getFence(request.number("table")).get());
    commands.put("tso.epoch", request -> client(request).getEpoch());
    commands.put("tso.is_low_latency", request -> client(request).isLowLatency());
    commands.put(
        "tso.close",
        request -> {
          CLIENTS.remove(request.text("client")).close().get();
          return null;
        });
  }

  /** What `tso.open` and `tm.open` say about the oracle. */
  static OmidClientConfiguration configuration(Request request) {
    OmidClientConfiguration configuration = new OmidClientConfiguration();
    configuration.setConnectionType(ConnType.valueOf(request.text("mode", "DIRECT")));
    configuration.setConnectionString(request.text("connect"));
    configuration.setZkNamespace(request.text("namespace", "omid"));
    configuration.setRequestTimeoutInMs(request.number("timeout_ms", 5000));
    configuration.setRequestMaxRetries(request.number("retries", 5));
    configuration.setReconnectionDelayInSecs(request.number("reconnect_s", 1));
    configuration.setConflictAnalysisLevel(
        ConflictDetectionLevel.valueOf(request.text("level", "CELL")));
    configuration.setPostCommitMode(PostCommitMode.valueOf(request.text("post_commit", "SYNC")));
    String trusted = request.text("trust_store", "");
    if (!trusted.isEmpty()) {
      configuration.setTlsEnabled(true);
      configuration.setTrustStoreLocation(trusted);
      configuration.setTrustStoreType("PKCS12");
      configuration.setTrustStorePassword(request.text("password"));
      configuration.setKeyStoreLocation(request.text("key_store"));
      configuration.setKeyStoreType("PKCS12");
      configuration.setKeyStorePassword(request.text("password"));
    }
    return configuration;
  }

  private static TSOClient client(Request request) {
    return CLIENTS.get(request.text("client"));
  }

  /** The cells listed, or as many as {@code NAME_count} says: too many to be listed. */
  private static Set<CellId> cells(Request request, String name) {
    Set<CellId> cells = new HashSet<>();
    for (long index = 1; index <= request.number(name + "_count", 0); index++) {
      // Multiples of an odd number differ, and half of them take a varint's ten bytes.
      cells.add(new Ids(index * 0x9E3779B97F4A7C15L, index, 1));
    }
    for (JsonElement item : request.list(name)) {
      JsonObject cell = item.getAsJsonObject();
      cells.add(
          new Ids(
              cell.get("cell").getAsLong(),
              cell.get("row").getAsLong(),
              cell.get("table").getAsLong()));
    }
    return cells;
  }
}
