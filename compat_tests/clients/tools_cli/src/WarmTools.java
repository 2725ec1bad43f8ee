import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs tools by their main classes, one after the other, in one JVM: starting one costs more than most tools do.
 *
 * Standard input gives, for each, int32 count and so many texts (the main class, then its arguments), and the tool's own input;
 * standard output answers int32 exit status, the tool's output, its errors. A text is int32 length and UTF-8.
 *
 * Apache Kafka's tools end by Exit.exit, which throws here: what is open is closed on the way up. A process would be gone then, so
 * the first status counts, and what is printed later is left out, but for the shutdown hooks, which run at the end as in a process.
 */
public final class WarmTools {
    /** Thrown where a tool would end the process. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1;

        Ended(int status) {
            super("exit status " + status, null, false, false);
        }
    }

    /** What a tool prints, until it has ended. */
    private static final class Printed extends ByteArrayOutputStream {
        private boolean closed;

        synchronized void stop(boolean now) {
            closed = now;
        }

        @Override
        public synchronized void write(int one) {
            if (!closed) {
                super.write(one);
            }
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) {
            if (!closed) {
                super.write(bytes, offset, length);
            }
        }
    }

    /** System.out or System.err of all tools: Scala's Console, and loggers, keep the one they find first. */
    private static final class Current extends OutputStream {
        private OutputStream now;

        Current(OutputStream first) {
            now = first;
        }

        synchronized void become(OutputStream other) {
            now = other;
        }

        @Override
        public synchronized void write(int one) throws IOException {
            now.write(one);
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) throws IOException {
            now.write(bytes, offset, length);
        }

        @Override
        public synchronized void flush() throws IOException {
            now.flush();
        }
    }

    private final Printed output = new Printed();
    private final Printed errors = new Printed();
    private final List<Runnable> hooks = new ArrayList<>();
    private Integer status;

    private void end(int code) {
        if (status == null) {
            status = code;
            output.stop(true);
            errors.stop(true);
        }
        throw new Ended(code);
    }

    private void run(String main, String[] arguments, byte[] input) {
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        System.setIn(new ByteArrayInputStream(input));
        int code = 0;
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException problem) {
            code = 1;
            if (!(problem.getCause() instanceof Ended)) {
                System.err.print("Exception in thread \"main\" ");
                problem.getCause().printStackTrace();
            }
        } catch (ReflectiveOperationException problem) {
            code = 1;
            problem.printStackTrace();
        }
        if (status == null) {
            status = code;
        }
        output.stop(false);
        errors.stop(false);
        hooks.forEach(Runnable::run);
    }

    private static byte[] bytes(DataInputStream in) throws IOException {
        return in.readNBytes(in.readInt());
    }

    private static void answer(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    public static void main(String[] none) throws IOException {
        InputStream first = System.in;
        PrintStream last = System.out;
        PrintStream log = System.err;
        DataInputStream in = new DataInputStream(new BufferedInputStream(first));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(last));
        Current output = new Current(log);
        Current errors = new Current(log);
        System.setOut(new PrintStream(output, true));
        System.setErr(new PrintStream(errors, true));
        while (true) {
            String[] words;
            try {
                words = new String[in.readInt()];
            } catch (EOFException end) {
                break;
            }
            for (int index = 0; index < words.length; index++) {
                words[index] = new String(bytes(in), StandardCharsets.UTF_8);
            }
            String[] arguments = new String[words.length - 1];
            System.arraycopy(words, 1, arguments, 0, arguments.length);
            WarmTools tool = new WarmTools();
            output.become(tool.output);
            errors.become(tool.errors);
            tool.run(words[0], arguments, bytes(in));
            output.become(log);
            errors.become(log);
            out.writeInt(tool.status);
            answer(out, tool.output.toByteArray());
            answer(out, tool.errors.toByteArray());
            out.flush();
        }
        // Threads that a tool has left must not keep the JVM.
        Runtime.getRuntime().halt(0);
    }
}
