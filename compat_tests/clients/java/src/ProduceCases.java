import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;

/** Producing: what is acknowledged is there, once, unchanged and in order; what is refused is refused with Kafka's error. */
final class ProduceCases {
    private static final Optional<Integer> ALL = Optional.empty();
    private final Support support;

    ProduceCases(Support support) {
        this.support = support;
    }

    void register(Cases cases) {
        cases.add("produce", "acks=0", () -> acks("0"));
        cases.add("produce", "acks=1", () -> acks("1"));
        cases.add("produce", "acks=-1", () -> acks("all"));
        cases.add("produce", "idempotent, many batches in flight", this::idempotent);
        cases.add("produce", "codec none", () -> codec("none", false));
        cases.add("produce", "codec gzip", () -> codec("gzip", false));
        cases.add("produce", "codec snappy", () -> codec("snappy", false));
        cases.add("produce", "codec lz4", () -> codec("lz4", false));
        cases.add("produce", "codec zstd", () -> codec("zstd", false));
        cases.add("produce", "idempotent with codec gzip", () -> codec("gzip", true));
        cases.add("produce", "idempotent with codec snappy", () -> codec("snappy", true));
        cases.add("produce", "idempotent with codec lz4", () -> codec("lz4", true));
        cases.add("produce", "idempotent with codec zstd", () -> codec("zstd", true));
        cases.add("produce", "headers: repeated, empty, not ASCII", () -> headers(List.of(
            new RecordHeader("a", Support.bytes("1")), new RecordHeader("a", Support.bytes("2")),
            new RecordHeader("", new byte[0]), new RecordHeader("größe", new byte[] {0, -1}))));
        cases.add("produce", "headers without a value", () -> headers(List.of(
            new RecordHeader("nothing", (byte[]) null), new RecordHeader("something", Support.bytes("x")))));
        cases.add("produce", "null and empty keys and values", this::nulls);
        cases.add("produce", "neither key nor value", this::nothing);
        cases.add("produce", "the producer's timestamps are kept", this::createTime);
        cases.add("produce", "LogAppendTime: the broker's clock is stamped", this::logAppendTime);
        cases.add("produce", "one batch of 900 KB", this::largeBatch);
        cases.add("produce", "a record of 1 MB", this::largeRecord);
        cases.add("produce", "a record above message.max.bytes is refused", () -> tooLarge(Map.of(), 1_200_000));
        cases.add("produce", "a record above the topic's max.message.bytes is refused", () -> tooLarge(Map.of("max.message.bytes", "2000"), 3000));
        cases.add("produce", "a compacted topic refuses records without a key", this::compacted);
        cases.add("produce", "records too old for the topic are refused", this::tooOld);
        cases.add("produce", "the topic's compression.type is applied: zstd", () -> recompressed("zstd"));
        cases.add("produce", "the topic's compression.type is applied: gzip", () -> recompressed("gzip"));
        cases.add("produce", "the topic's compression.type is applied: uncompressed", () -> recompressed("uncompressed"));
        cases.add("produce", "min.insync.replicas above the number of replicas does not bar acks=-1", this::fewReplicas);
        cases.add("produce", "a refused batch names the records at fault", this::recordErrors);
        cases.add("produce", "equal keys land in one partition", this::keys);
        cases.add("produce", "one request for many partitions", this::manyPartitions);
        cases.add("produce", "four producers at once on one partition", this::concurrent);
        cases.add("produce", "an unknown topic is created by producing", this::autoCreate);
        cases.add("produce", "an invalid topic name is refused", () -> Support.refused(
            () -> support.produce(List.of(Support.record("no spaces allowed", null, null, "v"))), Errors.INVALID_TOPIC_EXCEPTION));
    }

    private void acks(String level) throws Exception {
        String topic = support.topic(1);
        List<ProducerRecord<byte[], byte[]>> records = Support.texts(topic, 0, "record", 50);
        List<RecordMetadata> sent = support.produce(records, Map.of("acks", level, "enable.idempotence", "false"));
        List<ConsumerRecord<byte[], byte[]>> found = support.readTopic(topic, 1, 50);
        Support.equal(Support.sent(records, ALL), Support.contents(found, ALL), "content");
        Support.equal(Support.range(0, 50), Support.offsets(found), "offsets");
        if (!level.equals("0")) {
            Support.equal(Support.range(0, 50), sent.stream().map(RecordMetadata::offset).toList(), "acknowledged offsets");
        }
    }

    private void idempotent() throws Exception {
        String topic = support.topic(2);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 2000; n++) {
            records.add(Support.record(topic, n % 2, "" + n, ("value-" + n).repeat(20)));
        }
        support.produce(records, Map.of("enable.idempotence", "true", "batch.size", 2000, "linger.ms", 0));
        List<ConsumerRecord<byte[], byte[]>> found = support.readTopic(topic, 2, 2000);
        for (int index = 0; index < 2; index++) {
            Support.equal(Support.sent(records, Optional.of(index)), Support.contents(found, Optional.of(index)), "content");
        }
    }

    private void codec(String name, boolean idempotent) throws Exception {
        String topic = support.topic(1);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 500; n++) {
            records.add(Support.record(topic, 0, n % 3 == 0 ? "" + n : null, ("value-" + n + "-").repeat(50)));
        }
        support.produce(records, Map.of(
            "compression.type", name, "batch.size", 100_000, "linger.ms", 20, "enable.idempotence", "" + idempotent));
        Support.equal(Support.sent(records, ALL), Support.contents(support.readTopic(topic, 1, 500), ALL), "content");
    }

    private void headers(List<Header> headers) throws Exception {
        String topic = support.topic(1);
        support.produce(List.of(new ProducerRecord<>(topic, 0, Support.bytes("k"), Support.bytes("v"), headers)));
        Header[] found = support.readTopic(topic, 1, 1).get(0).headers().toArray();
        Support.equal(headers, List.of(found), "headers");
    }

    private void nulls() throws Exception {
        String topic = support.topic(1);
        List<ProducerRecord<byte[], byte[]>> records = List.of(
            Support.record(topic, 0, "k", null), Support.record(topic, 0, null, "v"), Support.record(topic, 0, "", ""));
        support.produce(records);
        Support.equal(Support.sent(records, ALL), Support.contents(support.readTopic(topic, 1, 3), ALL), "content");
    }

    private void nothing() throws Exception {
        String topic = support.topic(1);
        support.produce(List.of(Support.record(topic, 0, null, null)));
        Support.equal(List.of("null=null"), Support.contents(support.readTopic(topic, 1, 1), ALL), "content");
    }

    private void createTime() throws Exception {
        String topic = support.topic(1);
        long start = System.currentTimeMillis() - 10_000;
        List<Long> stamps = List.of(start + 5, start + 3, start + 900, start, start + 12);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        stamps.forEach(stamp -> records.add(new ProducerRecord<>(topic, 0, stamp, null, Support.bytes("v"))));
        support.produce(records);
        List<ConsumerRecord<byte[], byte[]>> found = support.readTopic(topic, 1, 5);
        Support.equal(stamps, found.stream().map(ConsumerRecord::timestamp).toList(), "timestamps");
        Support.check(found.stream().allMatch(one -> one.timestampType() == TimestampType.CREATE_TIME), "timestamp type");
    }

    private void logAppendTime() throws Exception {
        String topic = support.topic(1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis();
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            records.add(new ProducerRecord<>(topic, 0, 1_000_000L, null, Support.bytes("v")));
        }
        RecordMetadata sent = support.produce(records, Map.of("compression.type", "zstd")).get(0);
        for (ConsumerRecord<byte[], byte[]> one : support.readTopic(topic, 1, 3)) {
            Support.equal(TimestampType.LOG_APPEND_TIME, one.timestampType(), "timestamp type");
            Support.check(one.timestamp() >= before - 1000 && one.timestamp() <= System.currentTimeMillis() + 1000, "timestamp " + one.timestamp());
            Support.equal(one.timestamp(), sent.timestamp(), "acknowledged timestamp");
        }
    }

    private void largeBatch() throws Exception {
        String topic = support.topic(1);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 950; n++) {
            records.add(Support.record(topic, 0, null, ("" + n % 10).repeat(900)));
        }
        support.produce(records, Map.of("batch.size", 900_000, "linger.ms", 200));
        Support.equal(Support.sent(records, ALL), Support.contents(support.readTopic(topic, 1, 950), ALL), "content");
    }

    private void largeRecord() throws Exception {
        String topic = support.topic(1);
        byte[] value = new byte[1_000_000];
        new Random(1).nextBytes(value);
        support.produce(List.of(
            Support.record(topic, 0, null, "small"), new ProducerRecord<>(topic, 0, null, value),
            Support.record(topic, 0, null, "small")));
        Support.check(java.util.Arrays.equals(value, support.readTopic(topic, 1, 3).get(1).value()), "content of the large record");
    }

    private void tooLarge(Map<String, String> config, int size) throws Exception {
        String topic = support.topic(1, config);
        Support.refused(() -> support.produce(List.of(new ProducerRecord<>(topic, 0, null, new byte[size]))), Errors.MESSAGE_TOO_LARGE);
        support.produce(List.of(new ProducerRecord<>(topic, 0, null, new byte[1000])));
        Support.equal(1000, support.readTopic(topic, 1, 1).get(0).value().length, "size of the record that fits");
    }

    private void compacted() throws Exception {
        String topic = support.topic(1, Map.of("cleanup.policy", "compact"));
        Support.refused(() -> support.produce(List.of(Support.record(topic, 0, null, "v"))), Errors.INVALID_RECORD);
        support.produce(List.of(Support.record(topic, 0, "k", "v")));
        Support.equal(List.of("k=v"), Support.contents(support.readTopic(topic, 1, 1), ALL), "content");
    }

    private void tooOld() throws Exception {
        String topic = support.topic(1, Map.of("message.timestamp.before.max.ms", "60000"));
        long now = System.currentTimeMillis();
        Support.refused(() -> support.produce(List.of(
            new ProducerRecord<>(topic, 0, now - 3_600_000, null, Support.bytes("old")))), Errors.INVALID_TIMESTAMP);
        support.produce(List.of(new ProducerRecord<>(topic, 0, now - 1000, null, Support.bytes("new"))));
        Support.equal(List.of("null=new"), Support.contents(support.readTopic(topic, 1, 1), ALL), "content");
    }

    private void recompressed(String codec) throws Exception {
        String topic = support.topic(1, Map.of("compression.type", codec));
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>(Support.texts(topic, 0, "plain", 50));
        support.produce(records);
        List<ProducerRecord<byte[], byte[]>> packed = Support.texts(topic, 0, "packed", 50);
        List<RecordMetadata> sent = support.produce(packed, Map.of("compression.type", "lz4", "enable.idempotence", "true"));
        Support.equal(50L, sent.get(0).offset(), "offset of the first packed record");
        records.addAll(packed);
        Support.equal(Support.sent(records, ALL), Support.contents(support.readTopic(topic, 1, 100), ALL), "content");
    }

    private void fewReplicas() throws Exception {
        String topic = support.topic(1, Map.of("min.insync.replicas", "2"));
        Map<String, Object> once = Map.of("enable.idempotence", "false", "retries", 0, "acks", "all");
        support.produce(Support.texts(topic, 0, "all", 1), once);
        Support.equal(1, support.readTopic(topic, 1, 1).size(), "records");
    }

    private void recordErrors() throws Exception {
        String topic = support.topic(1, Map.of("cleanup.policy", "compact"));
        List<ProducerRecord<byte[], byte[]>> records = List.of(
            Support.record(topic, 0, "a", "good"), Support.record(topic, 0, null, "bad"), Support.record(topic, 0, "b", "good"));
        Map<String, Object> together = Map.of("linger.ms", 30_000, "enable.idempotence", "false");
        try (var producer = support.producer(together)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            records.forEach(record -> sent.add(producer.send(record)));
            producer.flush();
            List<String> outcomes = new ArrayList<>();
            for (Future<RecordMetadata> one : sent) {
                try {
                    Support.get(one);
                    outcomes.add("sent");
                } catch (java.util.concurrent.ExecutionException problem) {
                    outcomes.add(problem.getCause().getClass().getSimpleName());
                }
            }
            // The record without a key is at fault; the others share its batch and are told so.
            Support.equal(List.of("KafkaException", "InvalidRecordException", "KafkaException"), outcomes, "outcomes");
        }
    }

    private void keys() throws Exception {
        String topic = support.topic(6);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 200; n++) {
            records.add(Support.record(topic, null, "key-" + n % 10, "" + n));
        }
        support.produce(records);
        Map<String, Integer> places = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> one : support.readTopic(topic, 6, 200)) {
            Integer before = places.put(Support.text(one.key()), one.partition());
            Support.check(before == null || before == one.partition(), "one partition for a key");
        }
        Support.equal(10, places.size(), "keys");
    }

    private void manyPartitions() throws Exception {
        String topic = support.topic(30);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 300; n++) {
            records.add(Support.record(topic, n % 30, null, "" + n));
        }
        support.produce(records, Map.of("linger.ms", 50));
        List<ConsumerRecord<byte[], byte[]>> found = support.readTopic(topic, 30, 300);
        for (int index = 0; index < 30; index++) {
            Support.equal(Support.sent(records, Optional.of(index)), Support.contents(found, Optional.of(index)), "content");
        }
    }

    private void concurrent() throws Exception {
        String topic = support.topic(1);
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<List<RecordMetadata>>> running = new ArrayList<>();
        for (int n = 0; n < 4; n++) {
            List<ProducerRecord<byte[], byte[]>> records = Support.texts(topic, 0, "producer" + n, 100);
            running.add(threads.submit(() -> support.produce(records, Map.of("batch.size", 500))));
        }
        Set<Long> offsets = new java.util.HashSet<>();
        for (Future<List<RecordMetadata>> one : running) {
            Support.get(one).forEach(sent -> offsets.add(sent.offset()));
        }
        threads.shutdown();
        Support.equal(new java.util.HashSet<>(Support.range(0, 400)), offsets, "offsets");
        List<String> found = Support.contents(support.readTopic(topic, 1, 400), ALL);
        for (int n = 0; n < 4; n++) {
            String stem = "=producer" + n + "-";
            Support.equal(
                Support.sent(Support.texts(topic, 0, "producer" + n, 100), ALL),
                found.stream().filter(one -> one.contains(stem)).toList(), "order of one producer");
        }
    }

    private void autoCreate() throws Exception {
        String topic = support.name();
        support.produce(List.of(Support.record(topic, null, null, "first")));
        int partitions = support.describe(topic).partitions().size();
        Support.equal(List.of("null=first"), Support.contents(support.readTopic(topic, partitions, 1), ALL), "content");
    }
}
