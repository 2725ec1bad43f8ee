import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * The Java clients of the benchmark in one JVM that stays warm: a line of words separated by tabs in, a line of JSON out.
 *
 * Each command measures one thing against the broker it names; "failed" in the answer says why there is no value.
 */
public class Worker {
    /** One command: its words without the first. */
    private interface Command {
        Map<String, Object> run(String[] words) throws Exception;
    }

    private static final Map<String, Command> COMMANDS = Map.of(
            "produce", Records::produce,
            "consume", Records::consume,
            "transactions", Loops::transactions,
            "commits", Loops::commits,
            "share", Shares::share,
            "exchange", Exchange::run);

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        // What a library prints is no answer.
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            Map<String, Object> found = new TreeMap<>();
            try {
                System.gc(); // what the measure before left is not collected in this one
                found.putAll(COMMANDS.get(words[0]).run(Arrays.copyOfRange(words, 1, words.length)));
            } catch (Exception failure) {
                failure.printStackTrace();
                found.clear();
                found.put("failed", failure.toString());
            }
            answers.println(json(found));
            answers.flush();
        }
    }

    private static String json(Map<String, Object> values) {
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, Object> one : values.entrySet()) {
            text.append(text.length() == 0 ? "{" : ", ").append('"').append(one.getKey()).append("\": ");
            if (one.getValue() instanceof Number number) {
                text.append(String.format(Locale.ROOT, "%.6f", number.doubleValue()));
            } else {
                String written = String.valueOf(one.getValue());
                text.append('"').append(written.replaceAll("[\"\\\\\\p{Cntrl}]", " ")).append('"');
            }
        }
        return text.append("}").toString();
    }

    /** Adds p50_ms, p99_ms and p999_ms of so many of *nanoseconds*, which it sorts. */
    static void percentiles(Map<String, Object> values, long[] nanoseconds, int count) {
        if (count == 0) {
            throw new IllegalStateException("nothing was done in the measured time");
        }
        Arrays.sort(nanoseconds, 0, count);
        values.put("p50_ms", nanoseconds[(int) (count * 0.5)] / 1e6);
        values.put("p99_ms", nanoseconds[(int) (count * 0.99)] / 1e6);
        values.put("p999_ms", nanoseconds[(int) (count * 0.999)] / 1e6);
    }
}
