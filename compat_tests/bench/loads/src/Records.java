import java.io.DataInputStream;
import java.io.EOFException;
import java.io.BufferedInputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producing and consuming as fast as it goes. MB are 1,000,000 bytes of values. */
class Records {
    private static final long TIMEOUT_NS = 300_000_000_000L;
    private static final Map<String, byte[][]> POOLS = new TreeMap<>();

    /**
     * BOOTSTRAP TOPIC FILE COUNT KEYS [setting=value ...]: the values of the file in turn, COUNT records. KEYS: so many
     * different keys of 8 bytes, in turn; 0 is no key. The clock ends with the last answer.
     */
    static Map<String, Object> produce(String[] words) throws Exception {
        byte[][] pool = pool(words[2]);
        int count = Integer.parseInt(words[3]);
        byte[][] keys = new byte[Integer.parseInt(words[4])][];
        for (int number = 0; number < keys.length; number++) {
            keys[number] = ByteBuffer.allocate(8).putLong(number).array();
        }
        AtomicReference<Exception> refused = new AtomicReference<>();
        AtomicInteger answered = new AtomicInteger();
        long[] taken = new long[count];
        long size = 0;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings(words, 5, "client.id", "bench"), new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(words[1]);
            long begun = System.nanoTime();
            for (int number = 0; number < count; number++) {
                byte[] value = pool[number % pool.length];
                byte[] key = keys.length == 0 ? null : keys[number % keys.length];
                size += value.length;
                long sent = System.nanoTime();
                producer.send(new ProducerRecord<>(words[1], key, value), (metadata, failure) -> {
                    if (failure != null) {
                        refused.compareAndSet(null, failure);
                    }
                    taken[answered.getAndIncrement()] = System.nanoTime() - sent;
                });
            }
            producer.flush();
            double seconds = (System.nanoTime() - begun) / 1e9;
            if (refused.get() != null) {
                throw refused.get();
            }
            if (answered.get() != count) {
                throw new IllegalStateException(answered.get() + " of " + count + " records are answered");
            }
            Map<String, Object> values = new TreeMap<>();
            values.put("mb_per_s", size / 1e6 / seconds);
            values.put("bytes", size);
            Worker.percentiles(values, taken, count);
            return values;
        }
    }

    /**
     * BOOTSTRAP TOPIC COUNT BYTES TIMES [setting=value ...]: COUNT records or more from the beginning of all partitions,
     * whose first COUNT have so many bytes of values in all (0: nobody knows), so many times. The clock starts with the
     * first answer that has some, which does not count.
     */
    static Map<String, Object> consume(String[] words) throws Exception {
        long count = Long.parseLong(words[2]);
        long expected = Long.parseLong(words[3]);
        int times = Integer.parseInt(words[4]);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings(words, 5, "enable.auto.commit", "false"),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer())) {
            List<TopicPartition> assigned = new ArrayList<>();
            for (PartitionInfo one : consumer.partitionsFor(words[1])) {
                assigned.add(new TopicPartition(words[1], one.partition()));
            }
            consumer.assign(assigned);
            long begun = 0;
            long uncounted = 0;
            long whole = 0;
            long deadline = System.nanoTime() + TIMEOUT_NS;
            for (int turn = 0; turn < times; turn++) {
                long seen = 0;
                long size = 0;
                consumer.seekToBeginning(assigned);
                while (seen < count) {
                    ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofMillis(500));
                    for (ConsumerRecord<byte[], byte[]> one : found) {
                        if (seen < count) {
                            size += one.value().length;
                        }
                        seen++;
                    }
                    if (begun == 0 && !found.isEmpty()) {
                        begun = System.nanoTime();
                        uncounted = size;
                    }
                    if (System.nanoTime() > deadline) {
                        throw new IllegalStateException(seen + " of " + count + " records were read");
                    }
                }
                if (expected != 0 && size != expected) {
                    throw new IllegalStateException(size + " bytes were read, and not " + expected);
                }
                whole += size;
            }
            double seconds = (System.nanoTime() - begun) / 1e9;
            Map<String, Object> values = new TreeMap<>();
            values.put("mb_per_s", (whole - uncounted) / 1e6 / seconds);
            values.put("bytes", whole);
            return values;
        }
    }

    /** The settings of a client: those given from the word *first* on, and one more. */
    static Properties settings(String[] words, int first, String key, String value) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put(key, value);
        for (int place = first; place < words.length; place++) {
            String[] parts = words[place].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        return settings;
    }

    /** The values of a file: for each an int32 with its length, and its bytes. */
    private static byte[][] pool(String path) throws IOException {
        byte[][] known = POOLS.get(path);
        if (known != null) {
            return known;
        }
        List<byte[]> values = new ArrayList<>();
        try (DataInputStream file = new DataInputStream(new BufferedInputStream(new FileInputStream(path)))) {
            while (true) {
                byte[] value = new byte[file.readInt()];
                file.readFully(value);
                values.add(value);
            }
        } catch (EOFException end) {
            POOLS.put(path, values.toArray(new byte[0][]));
        }
        return POOLS.get(path);
    }
}
