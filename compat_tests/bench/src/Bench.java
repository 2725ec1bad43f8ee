import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java measures of transactions and of offset commits: one operation after the other for some seconds behind a
 * warm-up, then one line of JSON: operations per second, and percentiles of the time that a commit takes.
 *
 * Arguments: transactions BOOTSTRAP TOPIC SECONDS PARTITIONS RECORDS GROUP (GROUP "-": no offsets in the transactions),
 * or commits BOOTSTRAP TOPIC SECONDS PARTITIONS GROUP. Records have 100 bytes; all settings are the client's defaults.
 */
public class Bench {
    private static final double WARM_UP_S = 3;

    private interface Operation {
        /** Does it once; returns the nanoseconds that its commit took. */
        long run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        String topic = arguments[2];
        double seconds = Double.parseDouble(arguments[3]);
        int partitions = Integer.parseInt(arguments[4]);
        if (arguments[0].equals("transactions")) {
            transactions(bootstrap, topic, seconds, partitions, Integer.parseInt(arguments[5]), arguments[6]);
        } else {
            commits(bootstrap, topic, seconds, partitions, arguments[5]);
        }
    }

    private static void transactions(
            String bootstrap, String topic, double seconds, int partitions, int records, String group) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", topic);
        byte[] value = new byte[100];
        long[] offset = {0};
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            measure("transactions_per_s", seconds, () -> {
                producer.beginTransaction();
                for (int number = 0; number < records; number++) {
                    producer.send(new ProducerRecord<>(topic, number % partitions, null, value));
                }
                if (!group.equals("-")) {
                    offset[0] += records;
                    producer.sendOffsetsToTransaction(
                            Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset[0])),
                            new ConsumerGroupMetadata(group));
                }
                long begun = System.nanoTime();
                producer.commitTransaction();
                return System.nanoTime() - begun;
            });
        }
    }

    private static void commits(String bootstrap, String topic, double seconds, int partitions, String group)
            throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("enable.auto.commit", "false");
        List<TopicPartition> assigned = new ArrayList<>();
        for (int index = 0; index < partitions; index++) {
            assigned.add(new TopicPartition(topic, index));
        }
        long[] offset = {0};
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(assigned);
            measure("commits_per_s", seconds, () -> {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                offset[0]++;
                for (TopicPartition one : assigned) {
                    offsets.put(one, new OffsetAndMetadata(offset[0]));
                }
                long begun = System.nanoTime();
                consumer.commitSync(offsets, Duration.ofSeconds(30));
                return System.nanoTime() - begun;
            });
        }
    }

    private static void measure(String what, double seconds, Operation operation) throws Exception {
        long warm = System.nanoTime() + (long) (WARM_UP_S * 1e9);
        long total = 0;
        while (System.nanoTime() < warm) {
            operation.run();
            total++;
        }
        long begun = System.nanoTime();
        long end = begun + (long) (seconds * 1e9);
        long[] found = new long[1024];
        int count = 0;
        while (System.nanoTime() < end) {
            if (count == found.length) {
                found = Arrays.copyOf(found, 2 * count);
            }
            found[count++] = operation.run();
            total++;
        }
        double taken = (System.nanoTime() - begun) / 1e9;
        long[] ordered = Arrays.copyOf(found, count);
        Arrays.sort(ordered);
        System.out.printf(
                java.util.Locale.ROOT,
                "{\"%s\": %f, \"p50_ms\": %f, \"p99_ms\": %f, \"total\": %d}%n",
                what,
                count / taken,
                ordered[count / 2] / 1e6,
                ordered[count * 99 / 100] / 1e6,
                total);
    }
}
