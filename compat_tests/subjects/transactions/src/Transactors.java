import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactional producers that do what lines on standard input say, one line of answer for each: {@code ok …} or
 * {@code error NUMBER text}. Argument: HOST:PORT. Values are in hexadecimal, producers have numbers.
 *
 * <pre>
 * open N ID TIMEOUT_MS | begin N | send N TOPIC PARTITION VALUE… | offsets N GROUP TOPIC PARTITION OFFSET
 * commit N | abort N | vanish N | read TOPIC ISOLATION LAST_VALUE
 * </pre>
 */
public final class Transactors {
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    private Transactors(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Transactors all = new Transactors(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(all.answer(line.split(" ")));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) {
        try {
            return ("ok " + obey(words)).trim();
        } catch (Exception problem) {
            Throwable cause = problem;
            while (Errors.forException(cause) == Errors.UNKNOWN_SERVER_ERROR && cause.getCause() != null) {
                cause = cause.getCause();
            }
            return "error " + Errors.forException(cause).code() + " " + cause.toString().replaceAll("\\s+", " ");
        }
    }

    private String obey(String[] words) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producers.get(words[1]);
        switch (words[0]) {
            case "open" -> open(words[1], words[2], Integer.parseInt(words[3]));
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "vanish" -> producers.remove(words[1]).close(Duration.ZERO);
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(words[3], Integer.parseInt(words[4])), new OffsetAndMetadata(Long.parseLong(words[5]))),
                new ConsumerGroupMetadata(words[2]));
            case "send" -> {
                return send(producer, words);
            }
            case "read" -> {
                return read(words[1], words[2], HexFormat.of().parseHex(words[3]));
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    private void open(String number, String id, int timeoutMs) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", id, "transaction.timeout.ms", timeoutMs, "linger.ms", 0,
            "max.block.ms", 60_000, "retry.backoff.ms", 20, "reconnect.backoff.max.ms", 100);
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(number, producer);
        producer.initTransactions();
    }

    private static String send(KafkaProducer<byte[], byte[]> producer, String[] words) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int n = 4; n < words.length; n++) {
            sent.add(producer.send(new ProducerRecord<>(words[2], Integer.parseInt(words[3]), null, HexFormat.of().parseHex(words[n]))));
        }
        producer.flush();
        List<String> offsets = new ArrayList<>();
        for (Future<RecordMetadata> one : sent) {
            try {
                offsets.add("" + one.get().offset());
            } catch (ExecutionException problem) {
                throw (Exception) problem.getCause();
            }
        }
        return String.join(" ", offsets);
    }

    /** Reads partition 0 from the beginning until a record of that value; offset:value of all before it. */
    private String read(String topic, String isolation, byte[] last) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", bootstrap, "isolation.level", isolation, "auto.offset.reset", "earliest", "enable.auto.commit", false);
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            for (long deadline = System.currentTimeMillis() + 60_000; System.currentTimeMillis() < deadline; ) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(200))) {
                    if (java.util.Arrays.equals(one.value(), last)) {
                        return String.join(" ", found);
                    }
                    found.add(one.offset() + ":" + HexFormat.of().formatHex(one.value()));
                }
            }
        }
        throw new IllegalStateException("the last record did not come; " + found.size() + " came");
    }
}
