import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Runs the cases against a broker, a few at a time, and prints one line for each:
 * {@code CASE area / title PASS|FAIL detail}.
 *
 * Arguments: HOST:PORT, then optionally a regular expression for "area / title".
 */
public final class Cases {
    /** What a case does; any exception or error is a failure. */
    interface Body {
        void run() throws Exception;
    }

    record Case(String area, String title, Body body) {
        String name() {
            return area + " / " + title;
        }
    }

    private static final int AT_ONCE = 4;
    private static final long LIMIT_S = 400;

    private final List<Case> all = new ArrayList<>();

    /** Registers a case. The test suite reads the titles from these calls in the sources: keep both on one line. */
    void add(String area, String title, Body body) {
        all.add(new Case(area, title, body));
    }

    /** Registers a case of what only clients from 4.0 on can do. */
    void add4(String area, String title, Body body) {
        if (!AppInfoParser.getVersion().startsWith("3.")) {
            add(area, title, body);
        }
    }

    private static String run(Case one, ExecutorService threads) {
        long started = System.nanoTime();
        Future<?> running = threads.submit(() -> {
            one.body().run();
            return null;
        });
        try {
            running.get(LIMIT_S, TimeUnit.SECONDS);
            return "PASS " + (System.nanoTime() - started) / 1_000_000 + " ms";
        } catch (TimeoutException late) {
            running.cancel(true);
            return "FAIL not finished after " + LIMIT_S + " s";
        } catch (Throwable problem) {
            Throwable cause = problem.getCause() == null ? problem : problem.getCause();
            StringBuilder text = new StringBuilder(cause.toString());
            for (StackTraceElement frame : cause.getStackTrace()) {
                if (frame.getClassName().endsWith("Cases")) {
                    text.append(" at ").append(frame.getFileName()).append(':').append(frame.getLineNumber());
                    break;
                }
            }
            return "FAIL " + text.toString().replaceAll("\\s+", " ");
        }
    }

    public static void main(String[] arguments) throws Exception {
        Cases cases = new Cases();
        Support support = new Support(arguments[0]);
        new ProduceCases(support).register(cases);
        new ConsumeCases(support).register(cases);
        new GroupCases(support).register(cases);
        new AdminCases(support).register(cases);
        new TransactionCases(support).register(cases);
        new TransactionFencingCases(support).register(cases);
        new TransactionAdminCases(support).register(cases);
        Pattern wanted = Pattern.compile(arguments.length > 1 ? arguments[1] : "");
        ExecutorService workers = Executors.newFixedThreadPool(AT_ONCE);
        ExecutorService bodies = Executors.newCachedThreadPool();
        for (Case one : cases.all) {
            if (wanted.matcher(one.name()).find()) {
                workers.submit(() -> {
                    String outcome = run(one, bodies);
                    synchronized (System.out) {
                        System.out.println("CASE " + one.name() + " " + outcome);
                        System.out.flush();
                    }
                });
            }
        }
        workers.shutdown();
        workers.awaitTermination(60, TimeUnit.MINUTES);
        // Threads of a case that hangs must not keep the JVM.
        Runtime.getRuntime().halt(0);
    }
}
