import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;

/** Transactions as producers and consumers see them: committed, aborted, open, fenced, timed out. */
final class TransactionCases {
    static final Optional<Integer> ALL = Optional.empty();
    static final Map<String, Object> COMMITTED = Map.of("isolation.level", "read_committed");
    static final Errors[] FENCED = {Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH};
    private final Support support;

    TransactionCases(Support support) {
        this.support = support;
    }

    void register(Cases cases) {
        cases.add("transactions", "commit: all is seen, the marker takes an offset", this::commit);
        cases.add("transactions", "abort: nothing is seen by read_committed", this::abort);
        cases.add("transactions", "empty transactions leave nothing behind", this::empty);
        cases.add("transactions", "several topics and partitions at once", this::several);
        cases.add("transactions", "many batches in a transaction, codec none", () -> manyBatches("none"));
        cases.add("transactions", "many batches in a transaction, codec gzip", () -> manyBatches("gzip"));
        cases.add("transactions", "many batches in a transaction, codec snappy", () -> manyBatches("snappy"));
        cases.add("transactions", "many batches in a transaction, codec lz4", () -> manyBatches("lz4"));
        cases.add("transactions", "many batches in a transaction, codec zstd", () -> manyBatches("zstd"));
        cases.add("transactions", "one after the other, every third aborted", this::alternating);
        cases.add("transactions", "a refused batch: after the abort the same producer goes on", this::refusedBatch);
        cases.add("transactions", "an idempotent producer goes on after a refused batch", this::idempotentGoesOn);
        cases.add("transactions", "a transactional id is used by one producer after the other", this::again);
        cases.add("transactions", "transactions of three producers interleave in a partition, one aborts", this::interleaved);
        cases.add("transactions", "records of an aborted transaction that were not sent yet fail", this::notSentYet);
        cases.add("transactions, reading", "an open transaction holds back what comes after it", this::holdsBack);
        cases.add("transactions, reading", "the first of two open transactions decides", this::firstOpen);
        cases.add("transactions, reading", "end offset and position stop at the open transaction", this::endOffsets);
        cases.add("transactions, reading", "the offset for a time and the largest timestamp stop at the open transaction", this::times);
        cases.add("transactions, reading", "lag counts up to the last stable offset", this::lag);
        cases.add("transactions, reading", "seeks into the middle of aborted records", this::seeks);
        cases.add("transactions, reading", "deleting records takes aborted ones along", this::deleteRecords);
    }

    // -- what the cases share

    static KafkaProducer<byte[], byte[]> open(Support support, String id, Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(Map.of("transactional.id", id, "retry.backoff.ms", 20));
        all.putAll(config);
        KafkaProducer<byte[], byte[]> producer = support.producer(all);
        try {
            producer.initTransactions();
        } catch (RuntimeException problem) {
            producer.close(Duration.ZERO);
            throw problem;
        }
        return producer;
    }

    private KafkaProducer<byte[], byte[]> open(String id) {
        return open(support, id, Map.of());
    }

    /** Goes away without a word about an open transaction. */
    static void vanish(KafkaProducer<byte[], byte[]> producer) {
        producer.close(Duration.ZERO);
    }

    /** Sends and waits for all answers; the offsets. */
    static List<Long> send(KafkaProducer<byte[], byte[]> producer, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        records.forEach(one -> sent.add(producer.send(one)));
        producer.flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> one : sent) {
            offsets.add(Support.get(one).offset());
        }
        return offsets;
    }

    static List<Long> transaction(KafkaProducer<byte[], byte[]> producer, List<ProducerRecord<byte[], byte[]>> records, boolean commit)
        throws Exception {
        producer.beginTransaction();
        List<Long> offsets = send(producer, records);
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
        return offsets;
    }

    /** Appends an ordinary record, and reads partition 0 from the beginning until that comes; without it. */
    static List<ConsumerRecord<byte[], byte[]>> readAll(Support support, String topic, Map<String, Object> config) throws Exception {
        String end = "the end " + support.name();
        support.produce(List.of(Support.record(topic, 0, null, end)));
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(config, Support.partitions(topic, 1))) {
            Support.waitUntil("the last record", () -> {
                found.addAll(Support.poll(consumer, 200));
                return !found.isEmpty() && end.equals(Support.text(found.get(found.size() - 1).value()));
            });
        }
        found.remove(found.size() - 1);
        return found;
    }

    @SafeVarargs
    static List<String> contents(List<ProducerRecord<byte[], byte[]>>... parts) {
        List<String> found = new ArrayList<>();
        for (List<ProducerRecord<byte[], byte[]>> part : parts) {
            found.addAll(Support.sent(part, ALL));
        }
        return found;
    }

    private void seen(String topic, List<String> expected) throws Exception {
        Support.equal(expected, Support.contents(readAll(support, topic, COMMITTED), ALL), "committed records");
    }

    // -- transactions

    private void commit() throws Exception {
        String topic = support.topic(1);
        List<ProducerRecord<byte[], byte[]>> records = Support.texts(topic, 0, "record", 20);
        try (KafkaProducer<byte[], byte[]> producer = open(support.name())) {
            Support.equal(Support.range(0, 20), transaction(producer, records, true), "offsets");
            Support.equal(Support.range(21, 41), transaction(producer, records, true), "offsets");
        }
        seen(topic, contents(records, records));
    }

    private void abort() throws Exception {
        String topic = support.topic(1);
        List<ProducerRecord<byte[], byte[]>> dropped = Support.texts(topic, 0, "dropped", 20);
        List<ProducerRecord<byte[], byte[]>> kept = Support.texts(topic, 0, "kept", 5);
        try (KafkaProducer<byte[], byte[]> producer = open(support.name())) {
            transaction(producer, dropped, false);
            Support.equal(Support.range(21, 26), transaction(producer, kept, true), "offsets");
        }
        seen(topic, contents(kept));
        Support.equal(contents(dropped, kept), Support.contents(support.readTopic(topic, 1, 26).subList(0, 25), ALL), "all records");
    }

    private void empty() throws Exception {
        String topic = support.topic(1);
        try (KafkaProducer<byte[], byte[]> producer = open(support.name())) {
            transaction(producer, List.of(), true);
            transaction(producer, List.of(), false);
            transaction(producer, List.of(), true);
            Support.equal(Support.range(0, 3), transaction(producer, Support.texts(topic, 0, "a", 3), true), "offsets");
            transaction(producer, List.of(), false);
            Support.equal(Support.range(4, 6), transaction(producer, Support.texts(topic, 0, "b", 2), true), "offsets");
        }
    }

    private void several() throws Exception {
        List<String> topics = List.of(support.topic(3), support.topic(3));
        try (KafkaProducer<byte[], byte[]> producer = open(support.name())) {
            for (String stem : List.of("kept", "dropped", "also")) {
                List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
                for (String topic : topics) {
                    for (int n = 0; n < 12; n++) {
                        records.add(Support.record(topic, n % 3, null, stem + "-" + n));
                    }
                }
                transaction(producer, records, !stem.equals("dropped"));
            }
        }
        for (String topic : topics) {
            List<ConsumerRecord<byte[], byte[]>> found = support.readTopic(topic, 3, 24, COMMITTED);
            for (int index = 0; index < 3; index++) {
                List<String> expected = new ArrayList<>();
                for (String stem : List.of("kept", "also")) {
                    for (int n = index; n < 12; n += 3) {
                        expected.add("null=" + stem + "-" + n);
                    }
                }
                Support.equal(expected, Support.contents(found, Optional.of(index)), "partition " + index);
            }
        }
    }

    private void manyBatches(String codec) throws Exception {
        String topic = support.topic(2, Map.of("segment.bytes", "1048576"));
        List<ProducerRecord<byte[], byte[]>> kept = new ArrayList<>();
        Map<String, Object> config = Map.of("compression.type", codec, "batch.size", 4000, "linger.ms", 0);
        try (KafkaProducer<byte[], byte[]> producer = open(support, support.name(), config)) {
            for (String stem : List.of("kept", "dropped", "also")) {
                List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
                for (int n = 0; n < 1000; n++) {
                    records.add(Support.record(topic, n % 2, "" + n, (stem + "-" + n + " ").repeat(40)));
                }
                transaction(producer, records, !stem.equals("dropped"));
                if (!stem.equals("dropped")) {
                    kept.addAll(records);
                }
            }
        }
        List<ConsumerRecord<byte[], byte[]>> found = support.readTopic(topic, 2, 2000, COMMITTED);
        for (int index = 0; index < 2; index++) {
            Support.equal(Support.sent(kept, Optional.of(index)), Support.contents(found, Optional.of(index)), "partition " + index);
        }
    }

    private void alternating() throws Exception {
        String topic = support.topic(1);
        List<String> expected = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = open(support.name())) {
            for (int turn = 0; turn < 12; turn++) {
                List<ProducerRecord<byte[], byte[]>> records = Support.texts(topic, 0, "turn-" + turn, 3);
                transaction(producer, records, turn % 3 != 1);
                if (turn % 3 != 1) {
                    expected.addAll(contents(records));
                }
            }
        }
        seen(topic, expected);
    }

    private void refusedBatch() throws Exception {
        String topic = support.topic(1, Map.of("max.message.bytes", "3000"));
        List<String> expected = new ArrayList<>(contents(Support.texts(topic, 0, "before", 3)));
        try (KafkaProducer<byte[], byte[]> producer = open(support.name())) {
            transaction(producer, Support.texts(topic, 0, "before", 3), true);
            producer.beginTransaction();
            send(producer, Support.texts(topic, 0, "beside", 2));
            Support.refused(
                () -> send(producer, List.of(Support.record(topic, 0, null, "x".repeat(5000)))), Errors.RECORD_LIST_TOO_LARGE, Errors.MESSAGE_TOO_LARGE);
            try {
                producer.commitTransaction();
                throw new AssertionError("committed what was refused in part");
            } catch (KafkaException expectedHere) {
                producer.abortTransaction();
            }
            for (int turn = 0; turn < 3; turn++) {
                List<ProducerRecord<byte[], byte[]>> records = Support.texts(topic, 0, "after-" + turn, 2);
                transaction(producer, records, true);
                expected.addAll(contents(records));
            }
        }
        seen(topic, expected);
    }

    private void idempotentGoesOn() throws Exception {
        String topic = support.topic(1, Map.of("max.message.bytes", "3000"));
        List<String> expected = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = support.producer(Map.of())) {
            for (int turn = 0; turn < 3; turn++) {
                List<ProducerRecord<byte[], byte[]>> records = Support.texts(topic, 0, "turn-" + turn, 4);
                send(producer, records);
                expected.addAll(contents(records));
                Support.refused(
                    () -> send(producer, List.of(Support.record(topic, 0, null, "x".repeat(5000)))), Errors.RECORD_LIST_TOO_LARGE, Errors.MESSAGE_TOO_LARGE);
            }
        }
        seen(topic, expected);
    }

    private void again() throws Exception {
        String topic = support.topic(1);
        String id = support.name();
        List<String> expected = new ArrayList<>();
        for (int turn = 0; turn < 4; turn++) {
            List<ProducerRecord<byte[], byte[]>> records = Support.texts(topic, 0, "turn-" + turn, 3);
            KafkaProducer<byte[], byte[]> producer = open(id);
            if (turn == 2) {
                producer.beginTransaction();
                send(producer, records);
            } else {
                transaction(producer, records, true);
                expected.addAll(contents(records));
            }
            vanish(producer);
        }
        seen(topic, expected);
    }

    private void interleaved() throws Exception {
        String topic = support.topic(1);
        List<String> stems = List.of("a", "b", "c");
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        List<String> expected = new ArrayList<>();
        stems.forEach(stem -> producers.add(open(support.name())));
        for (int turn = 0; turn < 3; turn++) {
            producers.forEach(KafkaProducer::beginTransaction);
            for (int part = 0; part < 3; part++) {
                List<ProducerRecord<byte[], byte[]>> plain = Support.texts(topic, 0, "plain-" + turn + "-" + part, 1);
                support.produce(plain);
                expected.addAll(contents(plain));
                for (int index = 0; index < 3; index++) {
                    List<ProducerRecord<byte[], byte[]>> records = Support.texts(topic, 0, stems.get(index) + "-" + turn + "-" + part, 2);
                    send(producers.get(index), records);
                    if (index != turn) {
                        expected.addAll(contents(records));
                    }
                }
            }
            for (int index = 0; index < 3; index++) {
                if (index == turn) {
                    producers.get(index).abortTransaction();
                } else {
                    producers.get(index).commitTransaction();
                }
            }
        }
        producers.forEach(KafkaProducer::close);
        seen(topic, expected);
    }

    private void notSentYet() throws Exception {
        String topic = support.topic(1);
        Map<String, Object> patient = Map.of("linger.ms", 300_000, "delivery.timeout.ms", 400_000);
        try (KafkaProducer<byte[], byte[]> producer = open(support, support.name(), patient)) {
            producer.beginTransaction();
            Future<RecordMetadata> waiting = producer.send(Support.record(topic, 0, null, "waits"));
            producer.abortTransaction();
            try {
                Support.get(waiting);
                throw new AssertionError("the record was sent");
            } catch (java.util.concurrent.ExecutionException problem) {
                Support.check(problem.getCause() instanceof ApiException, "an exception of Kafka's, not " + problem.getCause());
            }
            producer.beginTransaction();
            Future<RecordMetadata> sent = producer.send(Support.record(topic, 0, null, "kept"));
            producer.flush(); // see commitTransaction in docs/troubleshooting.md
            producer.commitTransaction();
            long offset = Support.get(sent).offset();
            // Where the producer had already announced the partition when it aborted, the marker lies in front.
            Support.check(offset <= 1, "offset 0, or 1 behind a marker, not " + offset);
        }
        seen(topic, List.of("null=kept"));
    }

    // -- reading

    private void holdsBack() throws Exception {
        String topic = support.topic(1);
        support.produce(Support.texts(topic, 0, "before", 3));
        List<ProducerRecord<byte[], byte[]>> opened = Support.texts(topic, 0, "open", 2);
        List<ProducerRecord<byte[], byte[]>> later = Support.texts(topic, 0, "later", 4);
        try (KafkaProducer<byte[], byte[]> producer = open(support.name());
            KafkaConsumer<byte[], byte[]> consumer = support.assigned(COMMITTED, Support.partitions(topic, 1))) {
            producer.beginTransaction();
            send(producer, opened);
            support.produce(later);
            Support.read(consumer, 3);
            Support.equal(0, Support.poll(consumer, 400).size(), "records behind the open transaction");
            Support.equal(9, support.readTopic(topic, 1, 9).size(), "all records");
            producer.commitTransaction();
            Support.equal(contents(opened, later), Support.contents(Support.read(consumer, 6), ALL), "records after the commit");
        }
    }

    private void firstOpen() throws Exception {
        String topic = support.topic(1);
        try (KafkaProducer<byte[], byte[]> first = open(support.name());
            KafkaProducer<byte[], byte[]> second = open(support.name());
            KafkaConsumer<byte[], byte[]> consumer = support.assigned(COMMITTED, Support.partitions(topic, 1))) {
            first.beginTransaction();
            second.beginTransaction();
            send(first, Support.texts(topic, 0, "first", 2));
            send(second, Support.texts(topic, 0, "second", 2));
            second.commitTransaction();
            Support.equal(0, Support.poll(consumer, 400).size(), "records behind the first");
            second.beginTransaction();
            send(second, Support.texts(topic, 0, "third", 2));
            first.abortTransaction();
            Support.equal(contents(Support.texts(topic, 0, "second", 2)), Support.contents(Support.read(consumer, 2), ALL), "second");
            Support.equal(0, Support.poll(consumer, 300).size(), "records of the third");
            second.commitTransaction();
            Support.equal(contents(Support.texts(topic, 0, "third", 2)), Support.contents(Support.read(consumer, 2), ALL), "third");
        }
    }

    private void endOffsets() throws Exception {
        String topic = support.topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "before", 5));
        try (KafkaProducer<byte[], byte[]> producer = open(support.name());
            KafkaConsumer<byte[], byte[]> committed = support.assigned(COMMITTED, List.of(place));
            KafkaConsumer<byte[], byte[]> all = support.assigned(Map.of(), List.of(place))) {
            producer.beginTransaction();
            send(producer, Support.texts(topic, 0, "open", 3));
            support.produce(Support.texts(topic, 0, "later", 2));
            Support.equal(5L, committed.endOffsets(List.of(place)).get(place), "the last stable offset");
            Support.equal(10L, all.endOffsets(List.of(place)).get(place), "the high watermark");
            Support.read(committed, 5);
            Support.equal(5L, committed.position(place), "position");
            committed.seekToEnd(List.of(place));
            Support.equal(5L, committed.position(place), "position at the end");
            producer.abortTransaction();
            Support.waitUntil("the end behind the marker", () -> committed.endOffsets(List.of(place)).get(place) == 11);
            Support.equal(List.of(8L, 9L), Support.offsets(Support.read(committed, 2)), "offsets");
        }
    }

    private long listed(TopicPartition place, OffsetSpec spec, IsolationLevel isolation) throws Exception {
        return Support.get(support.admin.listOffsets(Map.of(place, spec), new ListOffsetsOptions(isolation)).all()).get(place).offset();
    }

    private void times() throws Exception {
        String topic = support.topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        long start = System.currentTimeMillis() - 100_000;
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 4; n++) {
            records.add(new ProducerRecord<>(topic, 0, start + n * 1000, null, Support.bytes("" + n)));
        }
        support.produce(records.subList(0, 2));
        try (KafkaProducer<byte[], byte[]> producer = open(support.name())) {
            producer.beginTransaction();
            send(producer, records.subList(2, 4));
            Support.equal(2L, listed(place, OffsetSpec.forTimestamp(start + 1500), IsolationLevel.READ_UNCOMMITTED), "uncommitted");
            Support.equal(-1L, listed(place, OffsetSpec.forTimestamp(start + 1500), IsolationLevel.READ_COMMITTED), "committed");
            Support.equal(1L, listed(place, OffsetSpec.forTimestamp(start + 500), IsolationLevel.READ_COMMITTED), "before");
            Support.equal(2L, listed(place, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED), "latest");
            Support.equal(4L, listed(place, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED), "latest");
            Support.equal(0L, listed(place, OffsetSpec.earliest(), IsolationLevel.READ_COMMITTED), "earliest");
            producer.commitTransaction();
        }
        Support.waitUntil("the end", () -> listed(place, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED) == 5);
        Support.equal(2L, listed(place, OffsetSpec.forTimestamp(start + 1500), IsolationLevel.READ_COMMITTED), "after the commit");
    }

    private void lag() throws Exception {
        String topic = support.topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "before", 5));
        try (KafkaProducer<byte[], byte[]> producer = open(support.name());
            KafkaConsumer<byte[], byte[]> consumer = support.assigned(COMMITTED, List.of(place))) {
            producer.beginTransaction();
            send(producer, Support.texts(topic, 0, "open", 3));
            Support.read(consumer, 5);
            Support.waitUntil("lag 0", () -> {
                Support.poll(consumer, 20);
                return consumer.currentLag(place).orElse(-1) == 0;
            });
            consumer.seek(place, 2);
            consumer.pause(List.of(place));
            Support.waitUntil("lag 3", () -> consumer.currentLag(place).orElse(-1) == 3);
            producer.commitTransaction();
            consumer.resume(List.of(place));
            Support.read(consumer, 6);
            Support.waitUntil("position behind the marker", () -> {
                Support.poll(consumer, 20);
                return consumer.position(place) == 9 && consumer.currentLag(place).orElse(-1) == 0;
            });
        }
    }

    private void seeks() throws Exception {
        String topic = support.topic(1);
        try (KafkaProducer<byte[], byte[]> producer = open(support, support.name(), Map.of("batch.size", 300))) {
            for (String stem : List.of("dropped", "kept", "dropped too", "also")) {
                transaction(producer, Support.texts(topic, 0, stem, 20), !stem.startsWith("dropped"));
            }
        }
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(COMMITTED, List.of(place))) {
            for (long start : List.of(7L, 0L, 20L, 21L, 30L, 41L, 42L, 50L, 55L, 62L, 63L, 70L, 82L)) {
                consumer.seek(place, start);
                List<Long> expected = new ArrayList<>(Support.range(21, 41));
                expected.addAll(Support.range(63, 83));
                expected.removeIf(offset -> offset < start);
                Support.equal(expected, Support.offsets(Support.read(consumer, expected.size())), "offsets from " + start);
            }
        }
    }

    private void deleteRecords() throws Exception {
        String topic = support.topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaProducer<byte[], byte[]> producer = open(support.name())) {
            transaction(producer, Support.texts(topic, 0, "dropped", 10), false);
            transaction(producer, Support.texts(topic, 0, "kept", 10), true);
            transaction(producer, Support.texts(topic, 0, "dropped", 10), false);
            transaction(producer, Support.texts(topic, 0, "also", 3), true);
        }
        Support.get(support.admin.deleteRecords(Map.of(place, org.apache.kafka.clients.admin.RecordsToDelete.beforeOffset(25))).all());
        List<ConsumerRecord<byte[], byte[]>> found = readAll(support, topic, COMMITTED);
        Support.equal(contents(Support.texts(topic, 0, "also", 3)), Support.contents(found, ALL), "records behind the beginning");
    }
}
