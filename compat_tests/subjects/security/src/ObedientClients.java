import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Producers and consumers in one JVM that do what lines of standard input say, each line at once and in a thread of its own:
 *
 * <pre>
 * NUMBER producer NAME KEY=VALUE ...        NUMBER consumer NAME TOPIC KEY=VALUE ...
 * NUMBER send NAME TOPIC TEXT               NUMBER read NAME
 * NUMBER metric NAME METRIC                 NUMBER close NAME
 * </pre>
 *
 * Words are separated by tabs. The answer is a line, NUMBER and OK and words, or NUMBER and ERROR and the exception with its causes.
 */
public final class ObedientClients {
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, KafkaConsumer<String, String>> CONSUMERS = new ConcurrentHashMap<>();

    private static String obey(String[] words) throws Exception {
        String name = words[2];
        switch (words[1]) {
            case "producer":
                PRODUCERS.put(name, new KafkaProducer<>(settings(words, 3), new StringSerializer(), new StringSerializer()));
                return "";
            case "consumer":
                KafkaConsumer<String, String> made =
                    new KafkaConsumer<>(settings(words, 4), new StringDeserializer(), new StringDeserializer());
                CONSUMERS.put(name, made);
                made.assign(List.of(new TopicPartition(words[3], 0)));
                made.seekToBeginning(made.assignment());
                return "";
            case "send":
                PRODUCERS.get(name).send(new ProducerRecord<>(words[3], 0, null, words[4])).get();
                return "";
            case "read":
                List<String> found = new ArrayList<>();
                for (ConsumerRecord<String, String> record : CONSUMERS.get(name).poll(Duration.ofMillis(300))) {
                    found.add(record.value());
                }
                return String.join("\t", found);
            case "metric":
                Map<?, ? extends org.apache.kafka.common.Metric> metrics =
                    PRODUCERS.containsKey(name) ? PRODUCERS.get(name).metrics() : CONSUMERS.get(name).metrics();
                double sum = 0;
                for (org.apache.kafka.common.Metric metric : metrics.values()) {
                    if (metric.metricName().name().equals(words[3])) {
                        sum += (Double) metric.metricValue();
                    }
                }
                return Double.toString(sum);
            case "close":
                if (PRODUCERS.containsKey(name)) {
                    PRODUCERS.remove(name).close(Duration.ofSeconds(5));
                } else if (CONSUMERS.containsKey(name)) {
                    CONSUMERS.remove(name).close(Duration.ofSeconds(5));
                }
                return "";
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    private static Properties settings(String[] words, int first) {
        Properties settings = new Properties();
        for (int i = first; i < words.length; i++) {
            int end = words[i].indexOf('=');
            settings.put(words[i].substring(0, end), words[i].substring(end + 1));
        }
        return settings;
    }

    private static String said(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (!(each instanceof ExecutionException)) {
                text.append(each).append(" <- ");
            }
        }
        return text.toString().replaceAll("\\s+", " ");
    }

    private static synchronized void answer(String number, String outcome, String words) {
        System.out.println(number + "\t" + outcome + "\t" + words);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            threads.submit(() -> {
                try {
                    answer(words[0], "OK", obey(words));
                } catch (Throwable error) {
                    answer(words[0], "ERROR", said(error));
                }
            });
        }
        // Whoever started this has gone: what is open goes with the JVM.
        Runtime.getRuntime().halt(0);
    }
}
