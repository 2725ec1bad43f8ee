import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Share consumers. */
class Shares {
    private static final long TIMEOUT_NS = 380_000_000_000L;

    /**
     * BOOTSTRAP TOPIC COUNT MEMBERS GROUP HOW [setting=value ...]: so many members of a new group acknowledge COUNT records
     * from the beginning of all partitions. HOW: "polls", all of a poll by the next one; "singly", each by a commitSync.
     * The clock starts with the first records, which do not count.
     */
    static Map<String, Object> share(String[] words) throws Exception {
        long count = Long.parseLong(words[2]);
        int members = Integer.parseInt(words[3]);
        boolean singly = words[5].equals("singly");
        begin(words);
        AtomicLong seen = new AtomicLong();
        AtomicLong begun = new AtomicLong();
        AtomicLong uncounted = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        long deadline = System.nanoTime() + TIMEOUT_NS;
        ExecutorService threads = Executors.newFixedThreadPool(members);
        List<Future<Void>> running = new ArrayList<>();
        long[] ended = {0};
        try {
            for (int number = 0; number < members; number++) {
                running.add(threads.submit(() -> {
                    try (KafkaShareConsumer<byte[], byte[]> consumer = consumer(words, singly)) {
                        consumer.subscribe(List.of(words[1]));
                        while (seen.get() < count) {
                            ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofMillis(500));
                            if (found.isEmpty()) {
                                if (System.nanoTime() > deadline) {
                                    throw new IllegalStateException(seen.get() + " of " + count + " records were read");
                                }
                                continue;
                            }
                            if (singly) {
                                consumer.commitSync();
                            }
                            found.forEach(one -> bytes.addAndGet(one.value().length));
                            if (begun.compareAndSet(0, System.nanoTime())) {
                                uncounted.set(found.count());
                            }
                            if (seen.addAndGet(found.count()) >= count) {
                                synchronized (ended) {
                                    ended[0] = ended[0] == 0 ? System.nanoTime() : ended[0];
                                }
                            }
                        }
                    }
                    return null;
                }));
            }
            for (Future<Void> one : running) {
                one.get();
            }
        } finally {
            threads.shutdownNow();
        }
        Map<String, Object> values = new TreeMap<>();
        values.put("per_s", (count - uncounted.get()) / ((ended[0] - begun.get()) / 1e9));
        values.put("total", seen.get());
        values.put("bytes", bytes.get());
        return values;
    }

    private static KafkaShareConsumer<byte[], byte[]> consumer(String[] words, boolean singly) {
        Properties settings = Records.settings(words, 6, "group.id", words[4]);
        if (singly) {
            settings.put("share.acquire.mode", "record_limit");
            settings.put("max.poll.records", "1");
        }
        return new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** The group begins at the start of the log. */
    private static void begin(String[] words) throws Exception {
        try (Admin admin = Admin.create(Records.settings(words, 6, "client.id", "share"))) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, words[4]);
            ConfigEntry start = new ConfigEntry("share.auto.offset.reset", "earliest");
            AlterConfigOp set = new AlterConfigOp(start, AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(group, List.of(set))).all().get();
        }
    }
}
