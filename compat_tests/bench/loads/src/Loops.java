import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions and offset commits: one after the other for some seconds behind a warm-up. Percentiles are those of the
 * time that a commit takes; "total" counts the operations of the warm-up, too.
 */
class Loops {
    private static final byte[] VALUE = new byte[100];

    private interface Operation {
        /** Does it once; returns the nanoseconds that its commit took. */
        long run() throws Exception;
    }

    /** BOOTSTRAP TOPIC WARM_UP_S SECONDS PARTITIONS RECORDS GROUP [setting=value ...] (GROUP "-": no offsets in them). */
    static Map<String, Object> transactions(String[] words) throws Exception {
        String topic = words[1];
        int partitions = Integer.parseInt(words[4]);
        int records = Integer.parseInt(words[5]);
        String group = words[6];
        long[] offset = {0};
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                Records.settings(words, 7, "transactional.id", topic),
                new ByteArraySerializer(),
                new ByteArraySerializer())) {
            producer.initTransactions();
            return measure(words, () -> {
                producer.beginTransaction();
                for (int number = 0; number < records; number++) {
                    producer.send(new ProducerRecord<>(topic, number % partitions, null, VALUE));
                }
                if (!group.equals("-")) {
                    offset[0] += records;
                    producer.sendOffsetsToTransaction(
                            Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset[0])),
                            new ConsumerGroupMetadata(group));
                }
                long begun = System.nanoTime();
                producer.flush(); // see commitTransaction in docs/troubleshooting.md
                producer.commitTransaction();
                return System.nanoTime() - begun;
            });
        }
    }

    /** BOOTSTRAP TOPIC WARM_UP_S SECONDS PARTITIONS GROUP [setting=value ...]: commitSync of all partitions. */
    static Map<String, Object> commits(String[] words) throws Exception {
        int partitions = Integer.parseInt(words[4]);
        List<TopicPartition> assigned = new ArrayList<>();
        for (int index = 0; index < partitions; index++) {
            assigned.add(new TopicPartition(words[1], index));
        }
        long[] offset = {0};
        String[] settings = Arrays.copyOf(words, words.length + 1);
        settings[words.length] = "enable.auto.commit=false";
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                Records.settings(settings, 6, "group.id", words[5]),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer())) {
            consumer.assign(assigned);
            return measure(words, () -> {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                offset[0]++;
                for (TopicPartition one : assigned) {
                    offsets.put(one, new OffsetAndMetadata(offset[0]));
                }
                long begun = System.nanoTime();
                consumer.commitSync(offsets, Duration.ofSeconds(60));
                return System.nanoTime() - begun;
            });
        }
    }

    private static Map<String, Object> measure(String[] words, Operation operation) throws Exception {
        long warm = System.nanoTime() + (long) (Double.parseDouble(words[2]) * 1e9);
        long total = 0;
        while (total == 0 || System.nanoTime() < warm) {
            operation.run();
            total++;
        }
        long begun = System.nanoTime();
        long end = begun + (long) (Double.parseDouble(words[3]) * 1e9);
        long[] found = new long[1024];
        int count = 0;
        while (count == 0 || System.nanoTime() < end) {
            if (count == found.length) {
                found = Arrays.copyOf(found, 2 * count);
            }
            found[count++] = operation.run();
        }
        double taken = (System.nanoTime() - begun) / 1e9;
        Map<String, Object> values = new TreeMap<>();
        values.put("per_s", count / taken);
        values.put("total", total + count);
        Worker.percentiles(values, found, count);
        return values;
    }
}
