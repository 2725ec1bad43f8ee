import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Does what lines on standard input say, with new clients each time; one line of answer for each: {@code ok …}, or
 * {@code error NAME text} with the error's name. Argument: HOST:PORT.
 *
 * <pre>
 * produce TOPIC RETRIES [REQUEST_TIMEOUT_MS] | idempotent TOPIC | transaction TOPIC ID | consume TOPIC | join TOPIC GROUP | commit TOPIC GROUP | describe TOPIC
 * </pre>
 */
public final class Faulted {
    private static final int LIMIT_MS = 60_000;
    private final String bootstrap;

    private Faulted(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Faulted all = new Faulted(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(all.answer(line.split(" ")));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) {
        try {
            return "ok " + obey(words);
        } catch (Exception problem) {
            Throwable cause = problem;
            while (Errors.forException(cause) == Errors.UNKNOWN_SERVER_ERROR && cause.getCause() != null) {
                cause = cause.getCause();
            }
            return "error " + Errors.forException(cause).name() + " " + cause.toString().replaceAll("\\s+", " ");
        }
    }

    private String obey(String[] words) throws Exception {
        return switch (words[0]) {
            case "produce" -> {
                int requestMs = words.length > 3 ? Integer.parseInt(words[3]) : LIMIT_MS;
                yield produce(words[1], Map.of("enable.idempotence", false, "retries", Integer.parseInt(words[2]),
                    "request.timeout.ms", requestMs, "delivery.timeout.ms", LIMIT_MS));
            }
            case "idempotent" -> produce(words[1], Map.of("enable.idempotence", true));
            case "transaction" -> transaction(words[1], words[2]);
            case "consume" -> consume(words[1], null, false);
            case "join" -> consume(words[1], words[2], false);
            case "commit" -> consume(words[1], words[2], true);
            case "describe" -> describe(words[1]);
            default -> throw new IllegalArgumentException(words[0]);
        };
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "acks", "all", "linger.ms", 0, "max.block.ms", LIMIT_MS, "retry.backoff.ms", 20,
            "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 100));
        config.putAll(more);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private String produce(String topic, Map<String, Object> more) throws Exception {
        try (KafkaProducer<String, String> producer = producer(more)) {
            return "" + producer.send(new ProducerRecord<>(topic, 0, null, "value")).get().offset();
        }
    }

    private String transaction(String topic, String id) throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", id))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "value"));
            producer.flush(); // see commitTransaction in docs/troubleshooting.md
            producer.commitTransaction();
            return "";
        }
    }

    /** Reads partition 0 up to its first record; in a group if there is one, and commits if asked to. */
    private String consume(String topic, String group, boolean commits) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "auto.offset.reset", "earliest", "enable.auto.commit", false, "retry.backoff.ms", 20,
            "default.api.timeout.ms", LIMIT_MS, "fetch.max.wait.ms", 100, "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 100));
        if (group != null) {
            config.put("group.id", group);
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            if (commits || group == null) {
                consumer.assign(List.of(partition));
            } else {
                consumer.subscribe(List.of(topic));
            }
            if (commits) {
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(1)));
                return "" + consumer.committed(java.util.Set.of(partition)).get(partition).offset();
            }
            for (long deadline = System.currentTimeMillis() + LIMIT_MS; System.currentTimeMillis() < deadline; ) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    return "" + record.offset();
                }
            }
        }
        throw new IllegalStateException("no record came");
    }

    private String describe(String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", LIMIT_MS, "default.api.timeout.ms", LIMIT_MS))) {
            return "" + admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        }
    }
}
