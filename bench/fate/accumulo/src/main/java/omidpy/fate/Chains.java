package omidpy.fate;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.stream.Collectors;
import org.apache.accumulo.core.conf.ConfigurationCopy;
import org.apache.accumulo.core.conf.DefaultConfiguration;
import org.apache.accumulo.core.fate.Fate;
import org.apache.accumulo.core.fate.ReadOnlyTStore.TStatus;
import org.apache.accumulo.core.fate.Repo;
import org.apache.accumulo.core.fate.ZooStore;
import org.apache.accumulo.core.fate.zookeeper.ZooCache;
import org.apache.accumulo.core.fate.zookeeper.ZooReaderWriter;
import org.apache.accumulo.core.fate.zookeeper.ZooUtil.NodeExistsPolicy;

/**
 * Runs chains of empty steps with Accumulo's executor, as lines on standard input ask for; what has
 * ended is deleted behind the measurement.
 *
 * <pre>
 *   chains COUNT SUBMITTERS   submit so many from so many threads; the answer is the seconds until
 *                             the last one has ended
 *   lone COUNT                one after another; the answer is the seconds of each
 * </pre>
 *
 * Arguments: HOST:PORT of ZooKeeper, a path that nobody uses, the number of steps of a chain, and
 * the number of threads.
 */
public final class Chains {
  private final Fate<String> fate;
  private final int steps;

  private Chains(Fate<String> fate, int steps) {
    this.fate = fate;
    this.steps = steps;
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, String> settings = new HashMap<>();
    for (Map.Entry<String, String> entry : DefaultConfiguration.getInstance()) {
      settings.put(entry.getKey(), entry.getValue());
    }
    settings.put("instance.zookeeper.host", arguments[0]);
    settings.put("instance.secret", "secret");
    settings.put("manager.fate.threadpool.size", arguments[3]);
    ConfigurationCopy configuration = new ConfigurationCopy(settings);
    ZooReaderWriter zookeeper = new ZooReaderWriter(configuration);
    String path = arguments[1];
    zookeeper.mkdirs(path.substring(0, path.lastIndexOf('/')));
    zookeeper.putPersistentData(path, new byte[0], NodeExistsPolicy.SKIP);
    ZooStore<String> store =
        new ZooStore<>(path, zookeeper, new ZooCache(zookeeper, null));
    Fate<String> fate = new Fate<>("", store, repo -> "");
    ScheduledThreadPoolExecutor general = new ScheduledThreadPoolExecutor(2);
    fate.startTransactionRunners(configuration, general);
    new Chains(fate, Integer.parseInt(arguments[2])).serve();
    fate.shutdown(false);
    general.shutdownNow();
    System.exit(0);
  }

  private void serve() throws Exception {
    BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    System.out.println("ready");
    for (String line = asked.readLine(); line != null; line = asked.readLine()) {
      String[] words = line.split(" ");
      int count = Integer.parseInt(words[1]);
      List<Double> seconds =
          words[0].equals("lone") ? lone(count) : List.of(chains(count, Integer.parseInt(words[2])));
      System.out.println(
          seconds.stream().map(String::valueOf).collect(Collectors.joining(" ")));
    }
  }

  private List<Double> lone(int count) {
    List<Double> seconds = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      long began = System.nanoTime();
      long id = submit();
      finish(id);
      seconds.add((System.nanoTime() - began) / 1e9);
      fate.delete(id);
    }
    return seconds;
  }

  private double chains(int count, int submitters) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(submitters);
    long began = System.nanoTime();
    List<Future<Long>> submitted = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      submitted.add(threads.submit(this::submit));
    }
    for (Future<Long> one : submitted) {
      finish(one.get());
    }
    double seconds = (System.nanoTime() - began) / 1e9;
    for (Future<Long> one : submitted) {
      fate.delete(one.get());
    }
    threads.shutdown();
    return seconds;
  }

  private long submit() {
    long id = fate.startTransaction();
    fate.seedTransaction("CHAIN", id, new Empty(steps), false, "measure");
    return id;
  }

  private void finish(long id) {
    if (fate.waitForCompletion(id) != TStatus.SUCCESSFUL) {
      throw new IllegalStateException("an empty step failed");
    }
  }

  /** A step that does nothing, with so many more to come. */
  private static final class Empty implements Repo<String> {
    private static final long serialVersionUID = 1L;
    private final int left;

    Empty(int left) {
      this.left = left;
    }

    @Override
    public long isReady(long id, String environment) {
      return 0;
    }

    @Override
    public String getName() {
      return "Empty";
    }

    @Override
    public Repo<String> call(long id, String environment) {
      return left > 1 ? new Empty(left - 1) : null;
    }

    @Override
    public void undo(long id, String environment) {}

    @Override
    public String getReturn() {
      return null;
    }
  }
}
