import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.protocol.Errors;

/** Transactional producers that somebody else has ended: a newer one of the same id, or the broker's clock. */
final class TransactionFencingCases {
    /** A transaction that ended another way: since 4.0 the broker recognises who asks for the last one again by its epoch. */
    static final Errors[] ENDED = {Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_EPOCH, Errors.INVALID_TXN_STATE};
    private final Support support;

    TransactionFencingCases(Support support) {
        this.support = support;
    }

    void register(Cases cases) {
        cases.add("transactions, fencing and time-outs", "a second producer of the same id fences the first", this::fencing);
        cases.add("transactions, fencing and time-outs", "a zombie's records are refused", this::zombie);
        cases.add("transactions, fencing and time-outs", "a transaction that takes too long is aborted, its producer learns of it", this::timedOut);
        cases.add("transactions, fencing and time-outs", "a time-out above the broker's maximum is refused", this::tooPatient);
        cases.add("transactions, fencing and time-outs", "producers of one id at once: only who committed is seen", this::race);
    }

    private KafkaProducer<byte[], byte[]> open(String id) {
        return TransactionCases.open(support, id, Map.of());
    }

    private void seen(String topic, List<String> expected) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> found = TransactionCases.readAll(support, topic, TransactionCases.COMMITTED);
        Support.equal(expected, Support.contents(found, TransactionCases.ALL), "committed records");
    }

    private void fencing() throws Exception {
        String topic = support.topic(1);
        String id = support.name();
        KafkaProducer<byte[], byte[]> first = open(id);
        TransactionCases.transaction(first, Support.texts(topic, 0, "before", 3), true);
        first.beginTransaction();
        TransactionCases.send(first, Support.texts(topic, 0, "open", 3));
        try (KafkaProducer<byte[], byte[]> second = open(id)) {
            Support.refused(first::commitTransaction, TransactionCases.FENCED);
            TransactionCases.transaction(second, Support.texts(topic, 0, "after", 3), true);
        }
        TransactionCases.vanish(first);
        seen(topic, TransactionCases.contents(Support.texts(topic, 0, "before", 3), Support.texts(topic, 0, "after", 3)));
    }

    private void zombie() throws Exception {
        String topic = support.topic(1);
        String id = support.name();
        KafkaProducer<byte[], byte[]> first = open(id);
        first.beginTransaction();
        TransactionCases.send(first, Support.texts(topic, 0, "open", 3));
        try (KafkaProducer<byte[], byte[]> second = open(id)) {
            second.beginTransaction();
            TransactionCases.send(second, Support.texts(topic, 0, "newer", 2));
            Support.refused(() -> TransactionCases.send(first, Support.texts(topic, 0, "zombie", 3)), TransactionCases.FENCED);
            second.commitTransaction();
        }
        TransactionCases.vanish(first);
        List<ConsumerRecord<byte[], byte[]>> everything = TransactionCases.readAll(support, topic, Map.of());
        Support.equal(
            TransactionCases.contents(Support.texts(topic, 0, "open", 3), Support.texts(topic, 0, "newer", 2)), Support.contents(everything, TransactionCases.ALL), "all records");
        List<ConsumerRecord<byte[], byte[]>> committed = TransactionCases.readAll(support, topic, TransactionCases.COMMITTED);
        committed.remove(committed.size() - 1);
        Support.equal(TransactionCases.contents(Support.texts(topic, 0, "newer", 2)), Support.contents(committed, TransactionCases.ALL), "committed records");
    }

    /** Sends in a transaction that is to time out. It may do so before all is sent, on a busy machine: then in a longer one. */
    private KafkaProducer<byte[], byte[]> leftOpen(String id, List<ProducerRecord<byte[], byte[]>> records, int millis) throws Exception {
        KafkaProducer<byte[], byte[]> producer = TransactionCases.open(support, id, Map.of("transaction.timeout.ms", millis));
        long begun = System.nanoTime();
        producer.beginTransaction();
        try {
            TransactionCases.send(producer, records);
            return producer;
        } catch (ExecutionException problem) {
            TransactionCases.vanish(producer);
            if (System.nanoTime() - begun < millis * 1_000_000L) {
                throw problem;
            }
            return leftOpen(id, records, 4 * millis);
        }
    }

    private void timedOut() throws Exception {
        String topic = support.topic(1);
        String id = support.name();
        List<ProducerRecord<byte[], byte[]>> behind = Support.texts(topic, 0, "behind it", 3);
        KafkaProducer<byte[], byte[]> producer = leftOpen(id, Support.texts(topic, 0, "late", 2), 1500);
        support.produce(behind);
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(TransactionCases.COMMITTED, Support.partitions(topic, 1))) {
            Support.equal(TransactionCases.contents(behind), Support.contents(Support.read(consumer, 3), TransactionCases.ALL), "records behind the transaction");
        }
        Support.refused(producer::commitTransaction, ENDED);
        TransactionCases.vanish(producer);
        try (KafkaProducer<byte[], byte[]> next = open(id)) {
            TransactionCases.transaction(next, Support.texts(topic, 0, "next", 2), true);
        }
        seen(topic, TransactionCases.contents(behind, Support.texts(topic, 0, "next", 2)));
    }

    private void tooPatient() throws Exception {
        try {
            TransactionCases.open(support, support.name(), Map.of("transaction.timeout.ms", 900_001)).close();
            throw new AssertionError("was not refused");
        } catch (KafkaException problem) {
            // It tells the error in words only.
            Support.check(problem.getMessage().contains(Errors.INVALID_TRANSACTION_TIMEOUT.message()), "refused with " + problem);
        }
        TransactionCases.open(support, support.name(), Map.of("transaction.timeout.ms", 900_000)).close();
    }

    private void race() throws Exception {
        String topic = support.topic(1);
        String id = support.name();
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<Boolean>> running = new ArrayList<>();
        List<String> refusals = Collections.synchronizedList(new ArrayList<>());
        for (int n = 0; n < 4; n++) {
            List<ProducerRecord<byte[], byte[]>> records = Support.texts(topic, 0, "producer-" + n, 2);
            Callable<Boolean> body = () -> {
                KafkaProducer<byte[], byte[]> producer = null;
                try {
                    producer = open(id);
                    TransactionCases.transaction(producer, records, true);
                    return true;
                } catch (Exception problem) {
                    Support.refused(() -> { throw problem; }, ENDED);
                    refusals.add((producer == null ? "while it opened: " : "") + problem + ", " + problem.getCause());
                    return false;
                } finally {
                    if (producer != null) {
                        TransactionCases.vanish(producer);
                    }
                }
            };
            running.add(threads.submit(body));
        }
        Set<String> expected = new TreeSet<>();
        for (int n = 0; n < 4; n++) {
            if (Support.get(running.get(n))) {
                expected.addAll(TransactionCases.contents(Support.texts(topic, 0, "producer-" + n, 2)));
            }
        }
        threads.shutdown();
        Support.check(!expected.isEmpty(), "nobody came through: " + refusals);
        List<String> found = Support.contents(TransactionCases.readAll(support, topic, TransactionCases.COMMITTED), TransactionCases.ALL);
        Support.equal(expected.size(), found.size(), "records");
        Support.equal(expected, found.stream().collect(Collectors.toCollection(TreeSet::new)), "committed records");
    }
}
