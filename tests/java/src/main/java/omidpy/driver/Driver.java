package omidpy.driver;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Does what a test asks for, with the classes of Apache Omid.
 *
 * <p>A request is one line of JSON on standard input, {@code {"id": 1, "do": "tso.begin", ...}};
 * its answer is one line on standard output, {@code {"id": 1, "value": ...}} or {@code {"id": 1,
 * "error": {"type": ..., "message": ..., "causes": [...]}}}. Requests of one {@code session} are
 * done in order by one thread, sessions do not wait for each other. The process ends with its
 * standard input, so that it cannot outlive who started it.
 */
public final class Driver {
  private final Gson gson = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
  private final Map<String, Command> commands = new HashMap<>();
  private final Map<String, ExecutorService> sessions = new HashMap<>();
  private final PrintStream answers;

  private Driver(PrintStream answers) {
    this.answers = answers;
    commands.put("ping", request -> "pong");
    commands.put("halt", request -> halt());
    Golden.register(commands);
    OracleClients.register(commands);
    Hbase hbase = new Hbase();
    hbase.register(commands);
    new Transactions(hbase).register(commands);
    new Administration(hbase).register(commands);
    new Benchmark(hbase).register(commands);
    new Frames(hbase).register(commands);
  }

  public static void main(String[] arguments) throws IOException {
    PrintStream answers = System.out;
    // Whatever a library prints must not be taken for an answer.
    System.setOut(System.err);
    new Driver(answers).serve();
    Runtime.getRuntime().halt(0);
  }

  /** End at once, without shutdown hooks: as a client that is killed. */
  static Object halt() {
    Runtime.getRuntime().halt(86);
    return null;
  }

  private void serve() throws IOException {
    BufferedReader requests =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      JsonObject request = JsonParser.parseString(line).getAsJsonObject();
      String session = request.has("session") ? request.get("session").getAsString() : "";
      sessions
          .computeIfAbsent(session, name -> Executors.newSingleThreadExecutor())
          .execute(() -> answer(request));
    }
  }

  private void answer(JsonObject request) {
    Map<String, Object> answer = new HashMap<>();
    answer.put("id", request.get("id").getAsLong());
    try {
      String name = request.get("do").getAsString();
      Command command = commands.get(name);
      if (command == null) {
        throw new IllegalArgumentException("no command is called " + name);
      }
      answer.put("value", command.run(new Request(request)));
    } catch (Throwable error) {
      answer.put("error", described(error));
    }
    synchronized (answers) {
      answers.writeBytes(bytes(gson.toJson(answer)));
      answers.flush();
    }
  }

  private static byte[] bytes(String line) {
    return (line + "\n").getBytes(StandardCharsets.UTF_8);
  }

  /** The error that a caller of Omid would have to deal with, and the chain of its causes. */
  private static Map<String, Object> described(Throwable thrown) {
    Throwable error = thrown;
    while ((error instanceof ExecutionException || error instanceof InvocationTargetException)
        && error.getCause() != null) {
      error = error.getCause();
    }
    List<String> causes = new ArrayList<>();
    for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
      causes.add(cause.getClass().getSimpleName() + ": " + cause.getMessage());
    }
    Map<String, Object> description = new HashMap<>();
    description.put("type", error.getClass().getSimpleName());
    description.put("message", String.valueOf(error.getMessage()));
    description.put("causes", causes);
    return description;
  }
}
