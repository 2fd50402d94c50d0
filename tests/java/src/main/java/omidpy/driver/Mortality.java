package omidpy.driver;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.omid.committable.CommitTable;
import org.apache.omid.tso.client.ServiceUnavailableException;
import org.apache.omid.tso.client.TSOFuture;
import org.apache.omid.tso.client.TSOProtocol;

/**
 * Where in its next commit a transaction manager of Omid comes to its end.
 *
 * <p>Both seams are public: the manager takes its oracle and its commit table from outside.
 */
final class Mortality {
  /** The steps of a commit between which a client may die. */
  enum Point {
    NEVER,
    /** Every cell is written, the oracle is not asked yet. */
    BEFORE_COMMIT,
    /** The commit is durable, no shadow cell is written. */
    AFTER_COMMIT,
    /** Every shadow cell is written, the entry is still in the commit table. */
    BEFORE_COMPLETION,
    /** No death: the oracle's answer never arrives, and the client has to find out by itself. */
    LOST_ANSWER,
  }

  /** Thrown instead of an end of the process: the client does nothing more for the transaction. */
  static final class Abandoned extends RuntimeException {
    private static final long serialVersionUID = 1;

    Abandoned(Point point) {
      super("abandoned " + point);
    }
  }

  private volatile Point point = Point.NEVER;
  private volatile boolean endsProcess;

  void schedule(Point next, boolean endsTheProcess) {
    endsProcess = endsTheProcess;
    point = next;
  }

  TSOProtocol oracle(TSOProtocol mortal) {
    return proxy(
        TSOProtocol.class,
        (method, arguments) -> {
          if (!method.getName().equals("commit") || point == Point.NEVER) {
            return called(mortal, method, arguments);
          }
          meet(Point.BEFORE_COMMIT);
          Object future = called(mortal, method, arguments);
          if (point == Point.AFTER_COMMIT || point == Point.LOST_ANSWER) {
            await((TSOFuture<?>) future);
          }
          meet(Point.AFTER_COMMIT);
          return point == Point.LOST_ANSWER ? lost() : future;
        });
  }

  CommitTable.Client commitTable(CommitTable.Client mortal) {
    return proxy(
        CommitTable.Client.class,
        (method, arguments) -> {
          if (method.getName().equals("deleteCommitEntry")) {
            meet(Point.BEFORE_COMPLETION);
          }
          return called(mortal, method, arguments);
        });
  }

  private void meet(Point here) {
    if (point != here) {
      return;
    }
    if (endsProcess) {
      Driver.halt();
    }
    point = Point.NEVER;
    throw new Abandoned(here);
  }

  /** The outcome is durable once there is an answer, whatever it says. */
  private static void await(Future<?> answer) throws InterruptedException {
    try {
      answer.get();
    } catch (ExecutionException error) {
      // An abort is an answer too.
    }
  }

  private TSOFuture<?> lost() {
    point = Point.NEVER;
    return proxy(
        TSOFuture.class,
        (method, arguments) -> {
          throw new ExecutionException(new ServiceUnavailableException("the answer was lost"));
        });
  }

  /** What a proxied object does when it is called. */
  @FunctionalInterface
  private interface Behaviour {
    Object call(Method method, Object[] arguments) throws Throwable;
  }

  private static Object called(Object target, Method method, Object[] arguments) throws Throwable {
    try {
      return method.invoke(target, arguments);
    } catch (InvocationTargetException error) {
      throw error.getCause();
    }
  }

  private static <T> T proxy(Class<T> type, Behaviour behaviour) {
    return type.cast(
        Proxy.newProxyInstance(
            type.getClassLoader(),
            new Class<?>[] {type},
            (self, method, arguments) -> behaviour.call(method, arguments)));
  }
}
