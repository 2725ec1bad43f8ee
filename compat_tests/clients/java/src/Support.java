import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What the cases share: clients, unused names, topics that are ready, reading with a deadline, expecting a refusal. */
final class Support {
    static final long DEADLINE_MS = 60_000;

    interface Check {
        boolean holds() throws Exception;
    }

    interface Action {
        void run() throws Exception;
    }

    final String bootstrap;
    final Admin admin;

    Support(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of(
            "bootstrap.servers", bootstrap, "default.api.timeout.ms", "60000", "request.timeout.ms", "60000"));
    }

    String name() {
        return "compat-java-" + UUID.randomUUID().toString().substring(0, 13);
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void equal(Object expected, Object found, String what) {
        check(expected == null ? found == null : expected.equals(found), what + ": expected " + expected + ", found " + found);
    }

    static void waitUntil(String what, Check check) throws Exception {
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        while (!check.holds()) {
            check(System.currentTimeMillis() < deadline, "not in time: " + what);
            Thread.sleep(20);
        }
    }

    /** Expects the action to fail with one of the errors. */
    static void refused(Action action, Errors... expected) throws Exception {
        try {
            action.run();
        } catch (Exception problem) {
            Throwable cause = problem;
            while ((cause instanceof ExecutionException || cause.getClass().equals(org.apache.kafka.common.KafkaException.class))
                && cause.getCause() != null) {
                cause = cause.getCause();
            }
            Errors found = Errors.forException(cause);
            check(List.of(expected).contains(found), "refused with " + cause + ", expected " + List.of(expected));
            return;
        }
        throw new AssertionError("was not refused; expected " + List.of(expected));
    }

    static <T> T get(Future<T> future) throws Exception {
        return future.get(DEADLINE_MS, TimeUnit.MILLISECONDS);
    }

    // -- topics

    String topic(int partitions) throws Exception {
        return topic(partitions, Map.of());
    }

    String topic(int partitions, Map<String, String> config) throws Exception {
        String name = name();
        create(new NewTopic(name, partitions, (short) 1).configs(config));
        return name;
    }

    void create(NewTopic topic) throws Exception {
        get(admin.createTopics(List.of(topic)).all());
        int wanted = topic.replicasAssignments() == null ? topic.numPartitions() : topic.replicasAssignments().size();
        waitUntil("topic " + topic.name(), () -> visible(topic.name(), wanted));
        // Metadata names a leader before that has opened its log. An idempotent producer whose first batch is refused for that
        // reason while its second is accepted can never send the first again (seen on Apache Kafka 4.3.1 under load).
        Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
        partitions(topic.name(), wanted).forEach(one -> ends.put(one, OffsetSpec.latest()));
        get(admin.listOffsets(ends).all());
    }

    boolean visible(String name, int partitions) throws Exception {
        try {
            TopicDescription found = describe(name);
            return found.partitions().size() == partitions && found.partitions().stream().allMatch(one -> one.leader() != null);
        } catch (ExecutionException problem) {
            if (Errors.forException(problem.getCause()) == Errors.UNKNOWN_TOPIC_OR_PARTITION) {
                return false;
            }
            throw problem;
        }
    }

    TopicDescription describe(String name) throws Exception {
        return get(admin.describeTopics(List.of(name)).allTopicNames()).get(name);
    }

    static List<TopicPartition> partitions(String topic, int count) {
        List<TopicPartition> found = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            found.add(new TopicPartition(topic, index));
        }
        return found;
    }

    // -- records

    static ProducerRecord<byte[], byte[]> record(String topic, Integer partition, String key, String value) {
        return new ProducerRecord<>(topic, partition, bytes(key), bytes(value));
    }

    static List<ProducerRecord<byte[], byte[]>> texts(String topic, int partition, String stem, int count) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            records.add(record(topic, partition, "key-" + n, stem + "-" + n));
        }
        return records;
    }

    KafkaProducer<byte[], byte[]> producer(Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(Map.of(
            // A request that is given up is sent again: without idempotence its records would be there twice.
            "bootstrap.servers", bootstrap, "delivery.timeout.ms", 120_000, "request.timeout.ms", 60_000,
            "max.block.ms", 60_000, "linger.ms", 5, "max.request.size", 4_000_000));
        all.putAll(config);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    List<RecordMetadata> produce(List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        return produce(records, Map.of());
    }

    /** Sends all and waits for all answers; the first refusal is thrown. */
    List<RecordMetadata> produce(List<ProducerRecord<byte[], byte[]>> records, Map<String, Object> config) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(config)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                sent.add(producer.send(record));
            }
            producer.flush();
            List<RecordMetadata> found = new ArrayList<>();
            for (Future<RecordMetadata> one : sent) {
                found.add(get(one));
            }
            return found;
        }
    }

    // -- consumers

    KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> config) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", "false");
        all.put("heartbeat.interval.ms", "200");
        all.put("session.timeout.ms", "30000");
        all.put("fetch.max.wait.ms", "100");
        all.put("metadata.max.age.ms", "1000");
        all.put("default.api.timeout.ms", "60000");
        all.putAll(config);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    KafkaConsumer<byte[], byte[]> member(String group, String topic, Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(config);
        all.put("group.id", group);
        KafkaConsumer<byte[], byte[]> consumer = consumer(all);
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    KafkaConsumer<byte[], byte[]> assigned(Map<String, Object> config, Collection<TopicPartition> partitions) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(config);
        consumer.assign(partitions);
        return consumer;
    }

    static List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer, long millis) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        consumer.poll(Duration.ofMillis(millis)).forEach(found::add);
        return found;
    }

    /** Polls until so many records are there; more are a failure. */
    static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        while (found.size() < count) {
            check(System.currentTimeMillis() < deadline, found.size() + " of " + count + " records in time");
            found.addAll(poll(consumer, 200));
        }
        equal(count, found.size(), "number of records");
        return found;
    }

    List<ConsumerRecord<byte[], byte[]>> readTopic(String topic, int partitions, int count, Map<String, Object> config) {
        try (KafkaConsumer<byte[], byte[]> consumer = assigned(config, partitions(topic, partitions))) {
            return read(consumer, count);
        }
    }

    List<ConsumerRecord<byte[], byte[]>> readTopic(String topic, int partitions, int count) {
        return readTopic(topic, partitions, count, Map.of());
    }

    /** Polls the members in turn until they share the partitions without overlap, none of them idle. */
    static List<ConsumerRecord<byte[], byte[]>> settle(
        List<KafkaConsumer<byte[], byte[]>> members, Collection<TopicPartition> wanted) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> seen = new ArrayList<>();
        waitUntil(members.size() + " members share " + wanted.size() + " partitions", () -> {
            Set<TopicPartition> held = new HashSet<>();
            int total = 0;
            boolean busy = true;
            for (KafkaConsumer<byte[], byte[]> member : members) {
                seen.addAll(poll(member, 50));
            }
            for (KafkaConsumer<byte[], byte[]> member : members) {
                held.addAll(member.assignment());
                total += member.assignment().size();
                busy &= !member.assignment().isEmpty();
            }
            return busy && total == wanted.size() && held.equals(new HashSet<>(wanted));
        });
        return seen;
    }

    static String content(byte[] key, byte[] value) {
        return text(key) + "=" + text(value);
    }

    static List<String> sent(List<ProducerRecord<byte[], byte[]>> records, Optional<Integer> partition) {
        return records.stream().filter(one -> partition.isEmpty() || partition.get().equals(one.partition()))
            .map(one -> content(one.key(), one.value())).toList();
    }

    static List<String> contents(List<ConsumerRecord<byte[], byte[]>> records, Optional<Integer> partition) {
        return records.stream().filter(one -> partition.isEmpty() || partition.get().equals(one.partition()))
            .map(one -> content(one.key(), one.value())).toList();
    }

    static List<Long> offsets(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(ConsumerRecord::offset).toList();
    }

    static List<Long> range(long first, long end) {
        List<Long> found = new ArrayList<>();
        for (long n = first; n < end; n++) {
            found.add(n);
        }
        return found;
    }
}
