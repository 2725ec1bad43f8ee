import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumers on demand. A line of input is {@code serial TAB command TAB member TAB argument...}, the answer
 * {@code serial TAB OK TAB result...} or {@code serial TAB ERR TAB number TAB text}, in any order.
 *
 * Each member polls in a thread of its own; what it is asked is done there between two polls. What a poll throws ends
 * the polling and is told by the command "failure".
 */
public final class Members {
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    interface Order {
        String carryOut() throws Exception;
    }

    record Asked(String serial, Order order) { }

    static final class Member extends Thread {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final LinkedBlockingQueue<Asked> asked = new LinkedBlockingQueue<>();
        private final List<String> records = new ArrayList<>();
        private String failure = "";
        private volatile boolean ends;
        private int lost;
        private boolean subscribed;

        Member(Map<String, Object> config) {
            consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            setDaemon(true);
            start();
        }

        void ask(String serial, Order order) {
            asked.add(new Asked(serial, order));
        }

        @Override
        public void run() {
            while (!ends) {
                for (Asked one = asked.poll(); one != null; one = asked.poll()) {
                    answer(one.serial(), one.order());
                    if (ends) {
                        return;
                    }
                }
                poll();
            }
        }

        private void poll() {
            try {
                if (!failure.isEmpty() || !subscribed) {
                    Thread.sleep(10);
                    return;
                }
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(50))) {
                    records.add(place(one.topic(), one.partition()) + ":" + one.offset() + ":"
                        + new String(one.value(), StandardCharsets.UTF_8));
                }
            } catch (Exception problem) {
                failure = Errors.forException(problem).code() + " " + problem;
            }
        }

        ConsumerRebalanceListener listener() {
            return new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(java.util.Collection<TopicPartition> partitions) { }

                @Override
                public void onPartitionsAssigned(java.util.Collection<TopicPartition> partitions) { }

                @Override
                public void onPartitionsLost(java.util.Collection<TopicPartition> partitions) {
                    lost += partitions.size();
                }
            };
        }

        String carryOut(String command, List<String> given) throws Exception {
            subscribed = subscribed || Set.of("subscribe", "pattern", "regex").contains(command);
            switch (command) {
                case "subscribe":
                    consumer.subscribe(given, listener());
                    return "";
                case "pattern":
                    consumer.subscribe(Pattern.compile(given.get(0)), listener());
                    return "";
                case "regex":
                    subscribeRegex(given.get(0));
                    return "";
                case "assignment":
                    Set<String> held = new TreeSet<>();
                    consumer.assignment().forEach(one -> held.add(place(one.topic(), one.partition())));
                    return String.join("\t", held);
                case "records":
                    return String.join("\t", records);
                case "failure":
                    return failure;
                case "lost":
                    return String.valueOf(lost);
                case "commit":
                    commit(given);
                    return "";
                case "committed":
                    OffsetAndMetadata found = consumer.committed(Set.of(partition(given.get(0)))).get(partition(given.get(0)));
                    return found == null ? "" : String.valueOf(found.offset());
                case "seek":
                    consumer.seek(partition(given.get(0)), Long.parseLong(given.get(1)));
                    return "";
                case "position":
                    return String.valueOf(consumer.position(partition(given.get(0))));
                case "member":
                    return consumer.groupMetadata().memberId() + "\t" + consumer.groupMetadata().generationId();
                case "close":
                    ends = true;
                    consumer.close(Duration.ofSeconds(45));
                    return String.join("\t", records);
                default:
                    throw new IllegalArgumentException(command);
            }
        }

        private void commit(List<String> given) {
            if (given.isEmpty()) {
                consumer.commitSync();
                return;
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (String one : given) {
                int end = one.lastIndexOf(':');
                offsets.put(partition(one.substring(0, end)), new OffsetAndMetadata(Long.parseLong(one.substring(end + 1))));
            }
            consumer.commitSync(offsets);
        }

        /** A SubscriptionPattern is matched by the broker; clients before 4.0 have none. */
        private void subscribeRegex(String text) throws Exception {
            Class<?> kind = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
            Object pattern = kind.getConstructor(String.class).newInstance(text);
            KafkaConsumer.class.getMethod("subscribe", kind, ConsumerRebalanceListener.class).invoke(consumer, pattern, listener());
        }
    }

    private static String place(String topic, int partition) {
        return topic + ":" + partition;
    }

    private static TopicPartition partition(String place) {
        int end = place.lastIndexOf(':');
        return new TopicPartition(place.substring(0, end), Integer.parseInt(place.substring(end + 1)));
    }

    private static void answer(String serial, Order order) {
        String line;
        try {
            line = serial + "\tOK\t" + order.carryOut();
        } catch (Throwable problem) {
            Throwable cause = problem;
            while (cause.getCause() != null && Errors.forException(cause) == Errors.UNKNOWN_SERVER_ERROR) {
                cause = cause.getCause();
            }
            line = serial + "\tERR\t" + Errors.forException(cause).code() + "\t" + String.valueOf(problem).replaceAll("\\s+", " ");
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
