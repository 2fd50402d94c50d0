package omidpy.driver;

/** One thing that a test may ask for. */
@FunctionalInterface
interface Command {
  /** Do it; the value returned becomes the JSON of the answer. */
  Object run(Request request) throws Exception;
}
