import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Share consumers on demand. A line of input is {@code serial TAB command TAB member TAB argument...}, the answer
 * {@code serial TAB OK TAB result...} or {@code serial TAB ERR TAB number TAB text}, in any order.
 *
 * Each member has a thread of its own, in which it does what it is asked. After "run" it polls for ever between two
 * such orders, with implicit acknowledgement; what a poll throws ends that and is told by "failure".
 */
public final class ShareMembers {
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();
    /** What has happened to all members, in order: G of a record that was got, A of an answer to an acknowledgement. */
    private static final List<String> EVENTS = Collections.synchronizedList(new ArrayList<>());

    interface Order {
        String carryOut() throws Exception;
    }

    record Asked(String serial, Order order) { }

    static final class Member extends Thread {
        private final KafkaShareConsumer<byte[], byte[]> consumer;
        private final LinkedBlockingQueue<Asked> asked = new LinkedBlockingQueue<>();
        private final Map<String, ConsumerRecord<byte[], byte[]>> last = new LinkedHashMap<>();
        private final List<String> records = new ArrayList<>();
        private final List<String> acknowledged = new ArrayList<>();
        private String failure = "";
        private boolean runs;
        private boolean ends;

        Member(Map<String, Object> config) {
            consumer = new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.setAcknowledgementCommitCallback((offsets, problem) -> offsets.forEach((partition, those) ->
                those.forEach(offset -> {
                    String one = partition.topic() + ":" + partition.partition() + ":" + offset + ":"
                        + (problem == null ? 0 : Errors.forException(problem).code());
                    acknowledged.add(one);
                    EVENTS.add("A:" + one + ":");
                })));
            setDaemon(true);
            start();
        }

        void ask(String serial, Order order) {
            asked.add(new Asked(serial, order));
        }

        @Override
        public void run() {
            while (!ends) {
                try {
                    Asked one = runs && failure.isEmpty() ? asked.poll() : asked.take();
                    if (one != null) {
                        answer(one.serial(), one.order());
                    } else {
                        records.addAll(poll(50));
                    }
                } catch (Exception problem) {
                    failure = Errors.forException(problem).code() + " " + problem;
                }
            }
        }

        /** topic:partition:offset:count:value of each. */
        private List<String> poll(long ms) {
            last.clear();
            List<String> found = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(ms))) {
                String place = one.topic() + ":" + one.partition() + ":" + one.offset();
                last.put(place, one);
                String got = place + ":" + one.deliveryCount().orElse((short) -1) + ":"
                    + new String(one.value(), StandardCharsets.UTF_8);
                found.add(got);
                EVENTS.add("G:" + got);
            }
            return found;
        }

        String carryOut(String command, List<String> given) throws Exception {
            switch (command) {
                case "subscribe":
                    consumer.subscribe(given);
                    return "";
                case "run":
                    runs = true;
                    return "";
                case "records":
                    return String.join("\t", records);
                case "acknowledged":
                    return String.join("\t", acknowledged);
                case "failure":
                    return failure;
                case "poll":
                    return String.join("\t", poll(Long.parseLong(given.get(0))));
                case "acknowledge":
                    AcknowledgeType type = AcknowledgeType.valueOf(given.get(0).toUpperCase(Locale.ROOT));
                    for (String place : given.subList(1, given.size())) {
                        consumer.acknowledge(last.get(place), type);
                    }
                    return "";
                case "commit":
                    List<String> codes = new ArrayList<>();
                    Map<TopicIdPartition, Optional<KafkaException>> told = consumer.commitSync(Duration.ofSeconds(45));
                    told.forEach((partition, problem) -> codes.add(partition.topic() + ":" + partition.partition() + ":"
                        + problem.map(Errors::forException).orElse(Errors.NONE).code()));
                    return String.join("\t", codes);
                case "events":
                    synchronized (EVENTS) {
                        return String.join("\t", EVENTS);
                    }
                case "lock":
                    return String.valueOf(consumer.acquisitionLockTimeoutMs().orElse(-1));
                case "close":
                    ends = true;
                    consumer.close(Duration.ofSeconds(45));
                    return String.join("\t", records);
                default:
                    throw new IllegalArgumentException(command);
            }
        }
    }

    private static void answer(String serial, Order order) {
        String line;
        try {
            line = serial + "\tOK\t" + order.carryOut();
        } catch (Throwable problem) {
            line = serial + "\tERR\t" + Errors.forException(problem).code() + "\t"
                + String.valueOf(problem).replaceAll("\\s+", " ");
        }
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            List<String> words = Arrays.asList(line.split("\t", -1));
            String serial = words.get(0);
            String command = words.get(1);
            String name = words.get(2);
            List<String> given = words.subList(3, words.size());
            if (command.equals("open")) {
                answer(serial, () -> {
                    Map<String, Object> config = new HashMap<>();
                    for (String one : given) {
                        int end = one.indexOf('=');
                        config.put(one.substring(0, end), one.substring(end + 1));
                    }
                    MEMBERS.put(name, new Member(config));
                    return "";
                });
            } else {
                Member member = MEMBERS.get(name);
                member.ask(serial, () -> member.carryOut(command, given));
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
