import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.DescribeProducersOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.AppInfoParser;

/** Transactions with offsets of groups, and transactions as an administrator sees and ends them. */
final class TransactionAdminCases {
    private static final Map<String, Object> COMMITTED = TransactionCases.COMMITTED;
    private final Support support;

    TransactionAdminCases(Support support) {
        this.support = support;
    }

    void register(Cases cases) {
        cases.add("transactions with offsets", "committed offsets are valid when the transaction is", this::commit);
        cases.add("transactions with offsets", "aborted offsets are not", this::abort);
        cases.add("transactions with offsets", "offsets of a fenced producer are not", this::fenced);
        cases.add("transactions with offsets", "a consumer waits for pending offsets", this::stable);
        cases.add("transactions with offsets", "a member of an earlier generation is refused", this::earlierGeneration);
        cases.add("transactions with offsets", "a static member that was replaced is refused", this::replacedInstance);
        cases.add("transactions with offsets", "consume, transform, produce: every record once, with aborts and restarts", this::exactlyOnce);
        cases.add("transactions, administration", "describe a transaction: open, committed, aborted", this::describe);
        cases.add("transactions, administration", "describing an unknown transactional id is refused", () -> Support.refused(
            () -> describe(support.name()), Errors.TRANSACTIONAL_ID_NOT_FOUND));
        cases.add("transactions, administration", "the epoch: one for each transaction since 4.0, one for each producer before", this::epochs);
        cases.add("transactions, administration", "list transactions: all, by state, by producer, by age", this::list);
        cases.add4("transactions, administration", "list transactions by a pattern of their ids", this::listByPattern);
        cases.add("transactions, administration", "describe the producers of a partition: an open transaction", this::producers);
        cases.add("transactions, administration", "abort a transaction on one partition by hand", this::abortByHand);
        cases.add("transactions, administration", "aborting by hand with an old epoch is refused", this::abortLate);
        cases.add("transactions, administration", "fence producers", this::fence);
    }

    private KafkaProducer<byte[], byte[]> open(String id) {
        return TransactionCases.open(support, id, Map.of());
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(Object... pairs) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        for (int n = 0; n < pairs.length; n += 2) {
            found.put((TopicPartition) pairs[n], new OffsetAndMetadata(((Integer) pairs[n + 1]).longValue(), "é " + pairs[n + 1]));
        }
        return found;
    }

    private Map<TopicPartition, OffsetAndMetadata> groupOffsets(String group) throws Exception {
        return Support.get(support.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
    }

    private void waitForOffsets(String group, Map<TopicPartition, OffsetAndMetadata> expected) throws Exception {
        Support.waitUntil("the offsets of the group", () -> groupOffsets(group).equals(expected));
    }

    // -- offsets

    private void commit() throws Exception {
        String topic = support.topic(2);
        String group = support.name();
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        try (KafkaProducer<byte[], byte[]> producer = open(support.name())) {
            producer.beginTransaction();
            TransactionCases.send(producer, Support.texts(topic, 0, "record", 2));
            producer.sendOffsetsToTransaction(offsets(first, 7, second, 3), new ConsumerGroupMetadata(group));
            Support.equal(Map.of(), groupOffsets(group), "offsets before the commit");
            producer.commitTransaction();
            waitForOffsets(group, offsets(first, 7, second, 3));
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(offsets(first, 8), new ConsumerGroupMetadata(group));
            producer.sendOffsetsToTransaction(offsets(first, 9), new ConsumerGroupMetadata(group));
            Support.equal(offsets(first, 7, second, 3), groupOffsets(group), "offsets before the commit");
            producer.commitTransaction();
            waitForOffsets(group, offsets(first, 9, second, 3));
        }
    }

    private void abort() throws Exception {
        TopicPartition place = new TopicPartition(support.topic(1), 0);
        String group = support.name();
        try (KafkaProducer<byte[], byte[]> producer = open(support.name())) {
            for (int offset : List.of(4, 6, 8)) {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(offsets(place, offset), new ConsumerGroupMetadata(group));
                if (offset == 4) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            // The next transaction shows that the marker of the last one is there.
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(offsets(place, 9), new ConsumerGroupMetadata(support.name()));
            producer.commitTransaction();
        }
        Support.equal(offsets(place, 4), groupOffsets(group), "offsets");
    }

    private void fenced() throws Exception {
        TopicPartition place = new TopicPartition(support.topic(1), 0);
        String group = support.name();
        String id = support.name();
        KafkaProducer<byte[], byte[]> first = open(id);
        first.beginTransaction();
        first.sendOffsetsToTransaction(offsets(place, 5), new ConsumerGroupMetadata(group));
        try (KafkaProducer<byte[], byte[]> second = open(id)) {
            Support.refused(
                () -> {
                    first.sendOffsetsToTransaction(offsets(place, 6), new ConsumerGroupMetadata(group));
                    first.commitTransaction();
                }, TransactionCases.FENCED);
            second.beginTransaction();
            second.sendOffsetsToTransaction(offsets(place, 2), new ConsumerGroupMetadata(group));
            second.commitTransaction();
        }
        TransactionCases.vanish(first);
        waitForOffsets(group, offsets(place, 2));
    }

    private void stable() throws Exception {
        TopicPartition place = new TopicPartition(support.topic(1), 0);
        String group = support.name();
        ExecutorService threads = Executors.newSingleThreadExecutor();
        // Java's consumers always ask for what is stable, whatever their isolation level.
        try (KafkaProducer<byte[], byte[]> producer = open(support.name());
            KafkaConsumer<byte[], byte[]> waiting = support.assigned(Map.of("group.id", group), List.of(place))) {
            waiting.commitSync(offsets(place, 1));
            for (boolean ends : List.of(true, false)) {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(offsets(place, ends ? 5 : 9), new ConsumerGroupMetadata(group));
                Future<Map<TopicPartition, OffsetAndMetadata>> asked = threads.submit(() -> waiting.committed(Set.of(place)));
                Thread.sleep(300);
                Support.check(!asked.isDone(), "waits for what is pending");
                Support.equal(offsets(place, ends ? 1 : 5), groupOffsets(group), "what was committed before");
                if (ends) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                Support.equal(offsets(place, 5), Support.get(asked), "what is stable");
            }
        } finally {
            threads.shutdown();
        }
    }

    /** Expects a refusal of the offsets that leaves the producer usable after an abort. */
    private static void commitFails(KafkaProducer<byte[], byte[]> producer, TopicPartition place, ConsumerGroupMetadata member) {
        producer.beginTransaction();
        try {
            producer.sendOffsetsToTransaction(offsets(place, 5), member);
            producer.commitTransaction();
        } catch (KafkaException problem) {
            Throwable cause = problem.getClass().equals(KafkaException.class) && problem.getCause() != null ? problem.getCause() : problem;
            Support.check(
                cause instanceof CommitFailedException || Errors.forException(cause) == Errors.FENCED_INSTANCE_ID, "refused with " + cause);
            producer.abortTransaction();
            return;
        }
        throw new AssertionError("was not refused");
    }

    private void earlierGeneration() throws Exception {
        String topic = support.topic(2);
        String group = support.name();
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaProducer<byte[], byte[]> producer = open(support.name());
            KafkaConsumer<byte[], byte[]> first = support.member(group, topic, Map.of())) {
            Support.settle(List.of(first), Support.partitions(topic, 2));
            ConsumerGroupMetadata before = first.groupMetadata();
            ConsumerGroupMetadata left;
            try (KafkaConsumer<byte[], byte[]> second = support.member(group, topic, Map.of())) {
                Support.settle(List.of(first, second), Support.partitions(topic, 2));
                commitFails(producer, place, before);
                Support.equal(Map.of(), groupOffsets(group), "offsets");
                left = second.groupMetadata();
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(offsets(place, 2), first.groupMetadata());
                producer.commitTransaction();
                waitForOffsets(group, offsets(place, 2));
            }
            Support.settle(List.of(first), Support.partitions(topic, 2)); // a consumer does not wait for the answer when it leaves
            commitFails(producer, place, left);
            Support.equal(offsets(place, 2), groupOffsets(group), "offsets");
        }
    }

    private void replacedInstance() throws Exception {
        String topic = support.topic(2);
        String group = support.name();
        TopicPartition place = new TopicPartition(topic, 0);
        Map<String, Object> named = Map.of("group.instance.id", "instance");
        try (KafkaProducer<byte[], byte[]> producer = open(support.name());
            KafkaConsumer<byte[], byte[]> first = support.member(group, topic, named)) {
            Support.settle(List.of(first), Support.partitions(topic, 2));
            ConsumerGroupMetadata before = first.groupMetadata();
            try (KafkaConsumer<byte[], byte[]> second = support.member(group, topic, named)) {
                Support.settle(List.of(second), Support.partitions(topic, 2));
                commitFails(producer, place, before);
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(offsets(place, 2), second.groupMetadata());
                producer.commitTransaction();
                waitForOffsets(group, offsets(place, 2));
            }
        }
    }

    private void exactlyOnce() throws Exception {
        String source = support.topic(2);
        String target = support.topic(1);
        String group = support.name();
        String id = support.name();
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 60; n++) {
            records.add(Support.record(source, n % 2, null, "" + n));
        }
        support.produce(records);
        Map<String, Object> small = new HashMap<>(COMMITTED);
        small.put("max.poll.records", 10);
        for (int done = 0; done < 60; done += 20) {
            try (KafkaConsumer<byte[], byte[]> member = support.member(group, source, small)) {
                KafkaProducer<byte[], byte[]> producer = open(id);
                for (int number = 0; done + 10 * number < 60 && number < 3; number++) {
                    List<ConsumerRecord<byte[], byte[]>> part = new ArrayList<>();
                    Support.waitUntil("ten records", () -> {
                        part.addAll(Support.poll(member, 100));
                        return part.size() >= 10;
                    });
                    Map<TopicPartition, OffsetAndMetadata> readTo = new HashMap<>();
                    List<ProducerRecord<byte[], byte[]>> out = new ArrayList<>();
                    for (ConsumerRecord<byte[], byte[]> one : part) {
                        readTo.put(new TopicPartition(source, one.partition()), new OffsetAndMetadata(one.offset() + 1));
                        out.add(Support.record(target, 0, null, "out " + Support.text(one.value())));
                    }
                    producer.beginTransaction();
                    TransactionCases.send(producer, out);
                    producer.sendOffsetsToTransaction(readTo, member.groupMetadata());
                    if (number == 2) {
                        break;
                    }
                    producer.commitTransaction();
                }
                // The third is left behind; who comes next with this id aborts it.
                TransactionCases.vanish(producer);
                open(id).close();
            }
        }
        List<ConsumerRecord<byte[], byte[]>> found = TransactionCases.readAll(support, target, COMMITTED);
        Support.equal(
            records.stream().map(one -> "out " + Support.text(one.value())).sorted().toList(),
            found.stream().map(one -> Support.text(one.value())).sorted().toList(), "output");
    }

    // -- administration

    private TransactionDescription describe(String id) throws Exception {
        return Support.get(support.admin.describeTransactions(List.of(id)).description(id));
    }

    private void describe() throws Exception {
        String topic = support.topic(3);
        String id = support.name();
        long before = System.currentTimeMillis();
        try (KafkaProducer<byte[], byte[]> producer = TransactionCases.open(support, id, Map.of("transaction.timeout.ms", 54_321))) {
            TransactionDescription found = describe(id);
            Support.equal(TransactionState.EMPTY, found.state(), "state");
            Support.equal(54_321L, found.transactionTimeoutMs(), "time-out");
            Support.equal(Set.of(), found.topicPartitions(), "partitions");
            Support.check(found.transactionStartTimeMs().isEmpty(), "no start");
            producer.beginTransaction();
            TransactionCases.send(producer, List.of(Support.record(topic, 0, null, "a"), Support.record(topic, 2, null, "b")));
            found = describe(id);
            Support.equal(TransactionState.ONGOING, found.state(), "state");
            Support.equal(Set.of(new TopicPartition(topic, 0), new TopicPartition(topic, 2)), found.topicPartitions(), "partitions");
            long start = found.transactionStartTimeMs().getAsLong();
            Support.check(start >= before && start <= System.currentTimeMillis(), "start " + start);
            Support.equal(
                Support.get(support.admin.describeCluster().nodes()).iterator().next().id(), found.coordinatorId(), "coordinator");
            producer.commitTransaction();
            Support.waitUntil("the commit", () -> describe(id).state() == TransactionState.COMPLETE_COMMIT);
            Support.equal(Set.of(), describe(id).topicPartitions(), "partitions");
            producer.beginTransaction();
            TransactionCases.send(producer, List.of(Support.record(topic, 1, null, "c")));
            Support.equal(Set.of(new TopicPartition(topic, 1)), describe(id).topicPartitions(), "partitions");
            producer.abortTransaction();
            Support.waitUntil("the abort", () -> describe(id).state() == TransactionState.COMPLETE_ABORT);
        }
    }

    private void epochs() throws Exception {
        String topic = support.topic(1);
        String id = support.name();
        boolean each = !AppInfoParser.getVersion().startsWith("3.");
        long producerId = -1;
        List<Integer> found = new ArrayList<>();
        for (int turn = 0; turn < 2; turn++) {
            try (KafkaProducer<byte[], byte[]> producer = open(id)) {
                for (int number = 0; number < 3; number++) {
                    producer.beginTransaction();
                    TransactionCases.send(producer, Support.texts(topic, 0, "record", 1));
                    TransactionDescription now = describe(id);
                    Support.check(producerId == -1 || producerId == now.producerId(), "the producer id stays");
                    producerId = now.producerId();
                    found.add(now.producerEpoch());
                    producer.commitTransaction();
                }
            }
        }
        Support.equal(each ? List.of(0, 1, 2, 4, 5, 6) : List.of(0, 0, 0, 1, 1, 1), found, "epochs");
    }

    private Map<String, TransactionListing> listed(ListTransactionsOptions options) throws Exception {
        return Support.get(support.admin.listTransactions(options).all()).stream()
            .collect(Collectors.toMap(TransactionListing::transactionalId, one -> one));
    }

    private void list() throws Exception {
        String topic = support.topic(1);
        String stem = support.name();
        List<String> ids = List.of(stem + "-empty", stem + "-open", stem + "-done");
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        ids.forEach(id -> producers.add(open(id)));
        producers.get(1).beginTransaction();
        TransactionCases.send(producers.get(1), Support.texts(topic, 0, "open", 1));
        TransactionCases.transaction(producers.get(2), Support.texts(topic, 0, "done", 1), true);
        Support.waitUntil("the commit", () -> describe(ids.get(2)).state() == TransactionState.COMPLETE_COMMIT);
        Map<String, TransactionListing> all = listed(new ListTransactionsOptions());
        List<TransactionState> states = List.of(TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT);
        for (int n = 0; n < 3; n++) {
            Support.equal(states.get(n), all.get(ids.get(n)).state(), "state of " + ids.get(n));
            Support.equal(describe(ids.get(n)).producerId(), all.get(ids.get(n)).producerId(), "producer of " + ids.get(n));
            Set<String> found = listed(new ListTransactionsOptions().filterStates(Set.of(states.get(n)))).keySet();
            for (int other = 0; other < 3; other++) {
                Support.equal(other == n, found.contains(ids.get(other)), ids.get(other) + " in " + states.get(n));
            }
            long producerId = all.get(ids.get(n)).producerId();
            Support.equal(
                Set.of(ids.get(n)), listed(new ListTransactionsOptions().filterProducerIds(Set.of(producerId))).keySet(), "by producer");
        }
        Thread.sleep(150);
        Set<String> old = listed(new ListTransactionsOptions().filterOnDuration(100)).keySet();
        Support.check(old.contains(ids.get(1)), "the open one is older than 100 ms");
        Set<String> older = listed(new ListTransactionsOptions().filterOnDuration(600_000)).keySet();
        Support.check(!older.contains(ids.get(1)) && !older.contains(ids.get(2)), "nor is it, or the last that was done, that old");
        Support.check(older.contains(ids.get(0)), "who never began one counts as old");
        producers.forEach(KafkaProducer::close);
    }

    private Set<String> byPattern(String pattern) throws Exception {
        ListTransactionsOptions options = new ListTransactionsOptions();
        // The sources are compiled against 3.9 as well, which does not have it.
        ListTransactionsOptions.class.getMethod("filterOnTransactionalIdPattern", String.class).invoke(options, pattern);
        return listed(options).keySet();
    }

    private void listByPattern() throws Exception {
        String stem = support.name();
        for (String tail : List.of("a1", "a2", "b1")) {
            open(stem + "-" + tail).close();
        }
        Support.equal(Set.of(stem + "-a1", stem + "-a2"), byPattern(stem + "-a.*"), "by pattern");
        Support.equal(Set.of(stem + "-b1"), byPattern(stem + "-[b-z]1"), "by pattern");
        Support.equal(Set.of(), byPattern(stem), "the whole id must match");
        Support.check(byPattern("").contains(stem + "-a1"), "no pattern, no filter");
        Support.refused(() -> byPattern("(["), Errors.valueOf("INVALID_REGULAR_EXPRESSION"));
    }

    private List<ProducerState> active(TopicPartition place) throws Exception {
        return Support.get(support.admin.describeProducers(List.of(place), new DescribeProducersOptions()).partitionResult(place))
            .activeProducers();
    }

    private void producers() throws Exception {
        TopicPartition place = new TopicPartition(support.topic(1), 0);
        String id = support.name();
        support.produce(Support.texts(place.topic(), 0, "before", 4), Map.of("enable.idempotence", false));
        long before = System.currentTimeMillis();
        try (KafkaProducer<byte[], byte[]> producer = open(id)) {
            producer.beginTransaction();
            TransactionCases.send(producer, Support.texts(place.topic(), 0, "open", 3));
            TransactionCases.send(producer, Support.texts(place.topic(), 0, "more", 2));
            List<ProducerState> found = active(place);
            Support.equal(1, found.size(), "producers");
            ProducerState state = found.get(0);
            TransactionDescription described = describe(id);
            Support.equal(described.producerId(), state.producerId(), "producer id");
            Support.equal(described.producerEpoch(), state.producerEpoch(), "epoch");
            Support.equal(4L, state.currentTransactionStartOffset().getAsLong(), "first offset");
            Support.equal(4, state.lastSequence(), "last sequence");
            Support.check(state.lastTimestamp() >= before, "timestamp " + state.lastTimestamp());
            producer.commitTransaction();
            Support.waitUntil("no open transaction", () -> active(place).get(0).currentTransactionStartOffset().isEmpty());
            Support.check(active(place).get(0).coordinatorEpoch().getAsInt() >= 0, "the coordinator's epoch");
        }
    }

    private void abortByHand() throws Exception {
        TopicPartition place = new TopicPartition(support.topic(1), 0);
        String topic = place.topic();
        String id = support.name();
        KafkaProducer<byte[], byte[]> producer = open(id);
        producer.beginTransaction();
        TransactionCases.send(producer, Support.texts(topic, 0, "open", 3));
        ProducerState state = active(place).get(0);
        int coordinatorEpoch = state.coordinatorEpoch().orElse(0);
        AbortTransactionSpec wanted = new AbortTransactionSpec(
            place, state.producerId(), (short) state.producerEpoch(), Math.max(coordinatorEpoch, 0));
        Support.get(support.admin.abortTransaction(wanted).all());
        List<ProducerRecord<byte[], byte[]>> later = Support.texts(topic, 0, "later", 2);
        support.produce(later);
        Support.equal(TransactionCases.contents(later), Support.contents(TransactionCases.readAll(support, topic, COMMITTED), Optional.empty()), "records");
        TransactionCases.vanish(producer);
    }

    private void abortLate() throws Exception {
        TopicPartition place = new TopicPartition(support.topic(1), 0);
        String id = support.name();
        open(id).close();
        try (KafkaProducer<byte[], byte[]> producer = open(id)) {
            TransactionCases.transaction(producer, Support.texts(place.topic(), 0, "done", 3), true);
            Support.waitUntil("the commit", () -> active(place).get(0).currentTransactionStartOffset().isEmpty());
            ProducerState state = active(place).get(0);
            AbortTransactionSpec late = new AbortTransactionSpec(place, state.producerId(), (short) (state.producerEpoch() - 1), 0);
            Support.refused(() -> Support.get(support.admin.abortTransaction(late).all()), Errors.INVALID_PRODUCER_EPOCH);
        }
    }

    private void fence() throws Exception {
        String topic = support.topic(1);
        List<String> ids = List.of(support.name(), support.name());
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        ids.forEach(id -> producers.add(open(id)));
        for (KafkaProducer<byte[], byte[]> producer : producers) {
            producer.beginTransaction();
            TransactionCases.send(producer, Support.texts(topic, 0, "open", 2));
        }
        var fenced = support.admin.fenceProducers(ids);
        Support.get(fenced.all());
        for (int n = 0; n < 2; n++) {
            Support.equal(describe(ids.get(n)).producerId(), Support.get(fenced.producerId(ids.get(n))), "producer id");
            KafkaProducer<byte[], byte[]> producer = producers.get(n);
            Support.refused(producer::commitTransaction, TransactionCases.FENCED);
            producer.close(Duration.ZERO);
        }
        Support.equal(0, TransactionCases.readAll(support, topic, COMMITTED).size(), "committed records");
        // An id that nobody used is made by that.
        String fresh = support.name();
        Support.get(support.admin.fenceProducers(List.of(fresh)).all());
        Support.equal(TransactionState.EMPTY, describe(fresh).state(), "state");
    }
}
