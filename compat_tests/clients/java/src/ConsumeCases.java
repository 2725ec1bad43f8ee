import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Consuming: from where one asks, exactly what is there, and without waiting longer than needed. */
final class ConsumeCases {
    private static final Optional<Integer> ALL = Optional.empty();
    /** Fetches that wait for longer than a case does: what comes earlier has ended the wait. */
    private static final Map<String, Object> LONG_WAIT =
        Map.of("fetch.max.wait.ms", "" + 2 * Support.DEADLINE_MS, "request.timeout.ms", "" + 3 * Support.DEADLINE_MS);
    private final Support support;

    ConsumeCases(Support support) {
        this.support = support;
    }

    void register(Cases cases) {
        cases.add("consume", "from the beginning, exact content of 10,000 records in 3 partitions", this::exact);
        cases.add("consume", "from the end: later records only", this::fromEnd);
        cases.add("consume", "from an offset", () -> fromOffset(Map.of("batch.size", 600)));
        cases.add("consume", "from an offset inside a compressed batch", () -> fromOffset(Map.of("compression.type", "lz4", "linger.ms", 100)));
        cases.add("consume", "from a timestamp", this::fromTimestamp);
        cases.add("consume", "an offset beyond the end falls back to the reset rule", this::outOfRange);
        cases.add("consume", "fetch limits smaller than a record still make progress", this::smallLimits);
        cases.add("consume", "a waiting fetch returns when a record arrives", this::longPoll);
        cases.add("consume", "many partitions at once", this::manyPartitions);
        cases.add("consume", "read_committed sees plain records", this::readCommitted);
        cases.add("consume", "a topic bigger than one answer, small and large batches mixed", this::mixedSizes);
        cases.add("consume", "paused partitions stay silent, incremental fetches go on", this::paused);
        cases.add("consume", "fetch.min.bytes waits for its time, and not longer", this::minBytes);
        cases.add("consume", "enough bytes end the wait for fetch.min.bytes", this::minBytesReached);
        cases.add("consume", "partitions come and go in one consumer", this::changingAssignment);
        cases.add("consume", "records of a deleted and recreated topic are the new ones", this::recreated);
        cases.add("consume", "seek to the beginning and to the end", this::seekBoth);
        cases.add("offsets", "watermarks: empty, filled, after deleting records", this::watermarks);
        cases.add("offsets", "offsets for times: before, at, between, after", this::forTimes);
        cases.add("offsets", "offsets for times when timestamps go backwards", this::forTimesDisordered);
        cases.add("offsets", "the offset of the largest timestamp", this::largestTimestamp);
        cases.add("offsets", "the position follows reading", this::position);
        cases.add("offsets", "lag is known to the consumer", this::lag);
    }

    private void exact() throws Exception {
        String topic = support.topic(3);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 10_000; n++) {
            records.add(Support.record(topic, n % 3, "" + n, ("value-" + n).repeat(n % 7)));
        }
        support.produce(records, Map.of("batch.size", 50_000));
        List<ConsumerRecord<byte[], byte[]>> found = support.readTopic(topic, 3, 10_000);
        for (int index = 0; index < 3; index++) {
            int partition = index;
            Support.equal(Support.sent(records, Optional.of(index)), Support.contents(found, Optional.of(index)), "content");
            List<Long> offsets = found.stream().filter(one -> one.partition() == partition).map(ConsumerRecord::offset).toList();
            Support.equal(Support.range(0, offsets.size()), offsets, "offsets");
        }
    }

    private void fromEnd() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "old", 20));
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of("auto.offset.reset", "latest"), List.of(partition))) {
            Support.equal(20L, consumer.position(partition), "position at the end");
            List<ProducerRecord<byte[], byte[]>> later = Support.texts(topic, 0, "new", 5);
            support.produce(later);
            Support.equal(Support.sent(later, ALL), Support.contents(Support.read(consumer, 5), ALL), "content");
        }
    }

    private void fromOffset(Map<String, Object> config) throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "record", 100), config);
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of(), List.of(partition))) {
            consumer.seek(partition, 37);
            Support.equal(Support.range(37, 100), Support.offsets(Support.read(consumer, 63)), "offsets");
            consumer.seek(partition, 99);
            Support.equal(List.of(99L), Support.offsets(Support.read(consumer, 1)), "offsets");
        }
    }

    private void fromTimestamp() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        long start = System.currentTimeMillis() - 100_000;
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 100; n++) {
            records.add(new ProducerRecord<>(topic, 0, start + n * 100, null, Support.bytes("" + n)));
        }
        support.produce(records, Map.of("batch.size", 500));
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of(), List.of(partition))) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, start + 4950)).get(partition);
            Support.equal(50L, found.offset(), "offset");
            Support.equal(start + 5000, found.timestamp(), "timestamp");
            consumer.seek(partition, found.offset());
            Support.equal(Support.range(50, 100), Support.offsets(Support.read(consumer, 50)), "offsets");
        }
    }

    private void outOfRange() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "record", 10));
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of(), List.of(partition))) {
            consumer.seek(partition, 5000);
            Support.equal(Support.range(0, 10), Support.offsets(Support.read(consumer, 10)), "offsets");
        }
    }

    private void smallLimits() throws Exception {
        String topic = support.topic(2);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 40; n++) {
            records.add(Support.record(topic, n % 2, null, ("" + (char) ('A' + n)).repeat(5000)));
        }
        support.produce(records, Map.of("batch.size", 6000, "linger.ms", 0));
        List<ConsumerRecord<byte[], byte[]>> found = support.readTopic(
            topic, 2, 40, Map.of("fetch.max.bytes", "1500", "max.partition.fetch.bytes", "1000"));
        for (int index = 0; index < 2; index++) {
            Support.equal(Support.sent(records, Optional.of(index)), Support.contents(found, Optional.of(index)), "content");
        }
    }

    private void longPoll() throws Exception {
        String topic = support.topic(1);
        support.produce(Support.texts(topic, 0, "first", 1));
        KafkaConsumer<byte[], byte[]> consumer = support.assigned(LONG_WAIT, Support.partitions(topic, 1));
        try {
            Support.read(consumer, 1);
            Support.poll(consumer, 300);
            CompletableFuture<Void> sender = CompletableFuture.runAsync(() -> {
                try {
                    support.produce(Support.texts(topic, 0, "late", 1));
                } catch (Exception problem) {
                    throw new IllegalStateException(problem);
                }
            }, CompletableFuture.delayedExecutor(300, TimeUnit.MILLISECONDS));
            Support.equal(List.of("key-0=late-0"), Support.contents(Support.read(consumer, 1), ALL), "content");
            Support.get(sender);
        } finally {
            consumer.close(Duration.ZERO); // it would wait for the next fetch
        }
    }

    private void manyPartitions() throws Exception {
        String topic = support.topic(40);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 400; n++) {
            records.add(Support.record(topic, n % 40, null, "" + n));
        }
        support.produce(records);
        Set<String> found = new HashSet<>();
        support.readTopic(topic, 40, 400).forEach(one -> found.add(one.partition() + ":" + Support.text(one.value())));
        Set<String> wanted = new HashSet<>();
        for (int n = 0; n < 400; n++) {
            wanted.add(n % 40 + ":" + n);
        }
        Support.equal(wanted, found, "partitions and values");
    }

    private void readCommitted() throws Exception {
        String topic = support.topic(1);
        List<ProducerRecord<byte[], byte[]>> records = Support.texts(topic, 0, "record", 30);
        support.produce(records);
        Support.equal(Support.sent(records, ALL),
            Support.contents(support.readTopic(topic, 1, 30, Map.of("isolation.level", "read_committed")), ALL), "content");
    }

    private void mixedSizes() throws Exception {
        String topic = support.topic(1, Map.of("segment.bytes", "1048576"));
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        int[] sizes = {10, 900_000, 100, 400_000, 3, 700_000, 50_000, 10, 900_000, 100, 400_000, 3, 700_000, 50_000};
        for (int n = 0; n < sizes.length; n++) {
            records.add(Support.record(topic, 0, "" + n, ("" + (char) ('a' + n)).repeat(sizes[n])));
        }
        support.produce(records, Map.of("batch.size", 100, "linger.ms", 0));
        Support.check(Support.sent(records, ALL).equals(Support.contents(support.readTopic(topic, 1, sizes.length), ALL)), "content");
    }

    private void paused() throws Exception {
        String topic = support.topic(3);
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of(), Support.partitions(topic, 3))) {
            for (int round = 0; round < 3; round++) {
                consumer.pause(Support.partitions(topic, 3));
                consumer.resume(List.of(new TopicPartition(topic, round)));
                for (int index = 0; index < 3; index++) {
                    support.produce(Support.texts(topic, index, "round" + round, 5));
                }
                // Of the partition of this round: what it missed while it was paused, and the new ones.
                List<ConsumerRecord<byte[], byte[]>> found = Support.read(consumer, 5 * (round + 1));
                int expected = round;
                Support.check(found.stream().allMatch(one -> one.partition() == expected), "only the resumed partition");
            }
        }
    }

    /** Returns how long the first record of a fetch takes to arrive, with 100,000 bytes asked for. */
    private long waited(int size, Map<String, Object> wait) throws Exception {
        String topic = support.topic(1);
        Map<String, Object> config = new HashMap<>(wait);
        config.put("fetch.min.bytes", "100000");
        KafkaConsumer<byte[], byte[]> consumer = support.assigned(config, Support.partitions(topic, 1));
        try {
            // Finds its position before the clock starts; no fetch is under way yet.
            consumer.position(new TopicPartition(topic, 0));
            support.produce(List.of(Support.record(topic, 0, null, "x".repeat(size))));
            long started = System.nanoTime();
            Support.read(consumer, 1);
            return (System.nanoTime() - started) / 1_000_000;
        } finally {
            consumer.close(Duration.ZERO); // it would wait for the next fetch
        }
    }

    private void minBytes() throws Exception {
        long millis = waited(10, Map.of("fetch.max.wait.ms", "2500"));
        Support.check(millis >= 2000, millis + " ms, the wait is 2500");
    }

    private void minBytesReached() throws Exception {
        waited(200_000, LONG_WAIT);
    }

    private void changingAssignment() throws Exception {
        String topic = support.topic(6);
        for (int index = 0; index < 6; index++) {
            support.produce(Support.texts(topic, index, "first", 4));
        }
        List<TopicPartition> all = Support.partitions(topic, 6);
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of(), all.subList(0, 3))) {
            Support.read(consumer, 12);
            // Keeps one, drops two, adds three: the fetch session changes, it does not start anew.
            consumer.assign(all.subList(2, 6));
            Support.read(consumer, 12);
            for (int index = 0; index < 6; index++) {
                support.produce(Support.texts(topic, index, "second", 4));
            }
            Support.check(Support.read(consumer, 16).stream().allMatch(one -> one.partition() >= 2), "only assigned partitions");
            consumer.assign(all);
            consumer.seek(all.get(0), 4);
            consumer.seek(all.get(1), 4);
            Support.check(Support.read(consumer, 8).stream().allMatch(one -> one.partition() < 2), "only what was missing");
        }
    }

    private void recreated() throws Exception {
        String topic = support.topic(1);
        support.produce(Support.texts(topic, 0, "old", 10));
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of(), Support.partitions(topic, 1))) {
            Support.read(consumer, 10);
            Support.get(support.admin.deleteTopics(List.of(topic)).all());
            Support.waitUntil("the topic is gone", () -> !Support.get(support.admin.listTopics().names()).contains(topic));
            support.create(new org.apache.kafka.clients.admin.NewTopic(topic, 1, (short) 1));
            List<ProducerRecord<byte[], byte[]>> later = Support.texts(topic, 0, "new", 5);
            support.produce(later);
            Support.equal(Support.sent(later, ALL), Support.contents(Support.read(consumer, 5), ALL), "content");
        }
    }

    private void seekBoth() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "record", 15));
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of(), List.of(partition))) {
            consumer.seekToEnd(List.of(partition));
            Support.equal(15L, consumer.position(partition), "the end");
            consumer.seekToBeginning(List.of(partition));
            Support.equal(0L, consumer.position(partition), "the beginning");
            Support.equal(Support.range(0, 15), Support.offsets(Support.read(consumer, 15)), "offsets");
        }
    }

    private void watermarks() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of(), List.of(partition))) {
            Support.equal(Map.of(partition, 0L), consumer.endOffsets(List.of(partition)), "end of an empty one");
            support.produce(Support.texts(topic, 0, "record", 25));
            Support.equal(Map.of(partition, 25L), consumer.endOffsets(List.of(partition)), "end");
            Support.get(support.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(10))).all());
            Support.equal(Map.of(partition, 10L), consumer.beginningOffsets(List.of(partition)), "beginning");
        }
    }

    private void forTimes() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        long start = System.currentTimeMillis() - 1_000_000;
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 20; n++) {
            records.add(new ProducerRecord<>(topic, 0, start + n * 1000, null, Support.bytes("v")));
        }
        support.produce(records, Map.of("batch.size", 200));
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of(), List.of(partition))) {
            long[][] asked = {{-5000, 0}, {0, 0}, {1, 1}, {7000, 7}, {18_500, 19}};
            for (long[] one : asked) {
                Support.equal(one[1], consumer.offsetsForTimes(Map.of(partition, start + one[0])).get(partition).offset(), "offset for " + one[0]);
            }
            Support.equal(null, consumer.offsetsForTimes(Map.of(partition, start + 19_001)).get(partition), "after the last");
        }
    }

    private void forTimesDisordered() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        long start = System.currentTimeMillis() - 1_000_000;
        for (long stamp : new long[] {5000, 1000, 9000, 2000, 8000}) {
            support.produce(List.of(new ProducerRecord<>(topic, 0, start + stamp, null, Support.bytes("v"))));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of(), List.of(partition))) {
            Support.equal(0L, consumer.offsetsForTimes(Map.of(partition, start + 500)).get(partition).offset(), "at 500");
            Support.equal(2L, consumer.offsetsForTimes(Map.of(partition, start + 5001)).get(partition).offset(), "at 5001");
            Support.equal(null, consumer.offsetsForTimes(Map.of(partition, start + 9001)).get(partition), "at 9001");
        }
    }

    private void largestTimestamp() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        long start = System.currentTimeMillis() - 100_000;
        for (long stamp : new long[] {3000, 9000, 4000}) {
            support.produce(List.of(new ProducerRecord<>(topic, 0, start + stamp, null, Support.bytes("v"))));
        }
        var found = Support.get(support.admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition));
        Support.equal(1L, found.offset(), "offset");
        Support.equal(start + 9000, found.timestamp(), "timestamp");
    }

    private void position() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "record", 12));
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of(), List.of(partition))) {
            Support.equal(0L, consumer.position(partition), "position before");
            Support.read(consumer, 12);
            Support.equal(12L, consumer.position(partition), "position after");
        }
    }

    private void lag() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "record", 12));
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of("max.poll.records", "5"), List.of(partition))) {
            List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
            Support.waitUntil("the first records", () -> {
                consumer.poll(Duration.ofMillis(100)).forEach(found::add);
                return !found.isEmpty();
            });
            Support.equal(12L - found.size(), consumer.currentLag(partition).getAsLong(), "lag");
        }
    }
}
