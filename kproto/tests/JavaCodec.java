import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/**
 * Reads lines "class version hex" and answers each with what Apache Kafka's own class makes of the bytes: read, number
 * of bytes it left, written again.
 */
public class JavaCodec {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
    };

    public static void main(String[] args) throws Exception {
        HexFormat hex = HexFormat.of();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 3);
            out.append(answer(words[0], Short.parseShort(words[1]), hex.parseHex(words[2]), hex)).append('\n');
        }
        System.out.print(out);
    }

    private static String answer(String name, short version, byte[] data, HexFormat hex) {
        try {
            ByteBuffer buffer = ByteBuffer.wrap(data);
            Message message = constructor(name).newInstance(new ByteBufferAccessor(buffer), version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer again = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(again), cache, version);
            return buffer.remaining() + " " + hex.formatHex(again.array());
        } catch (ReflectiveOperationException e) {
            return "failed " + e.getCause();
        } catch (RuntimeException e) {
            return "failed " + e;
        }
    }

    private static Constructor<? extends Message> constructor(String name) throws ReflectiveOperationException {
        for (String prefix : PACKAGES) {
            for (String suffix : new String[] {"Data", ""}) {
                try {
                    return Class.forName(prefix + name + suffix)
                        .asSubclass(Message.class)
                        .getConstructor(Readable.class, short.class);
                } catch (ClassNotFoundException e) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }
}
