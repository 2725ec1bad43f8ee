import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * A stateful word count with exactly_once_v2: lines in, a record (word, count so far) out for every word that was read.
 *
 * Arguments: bootstrap, application id, input topic, output topic, state directory, then key=value settings. It prints
 * "STATE ..." at each change of state, "RESTORED partition records" for each restored store, "FAILED ..." and ends with
 * status 1 when a thread fails, and "CLOSED" after a TERM. Without cache, so that no count is swallowed by the next one.
 *
 * Two settings are its own: "lengths.topic", another topic, makes another topology, which counts the words of each
 * length there, too; "on.failure" names what becomes of the application when a thread fails, as does one on the word
 * "poison" if this is set.
 */
public final class WordCount {
    private WordCount() {
    }

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Path.of(arguments[4]).toAbsolutePath().toString());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
        for (String setting : Arrays.asList(arguments).subList(5, arguments.length)) {
            int at = setting.indexOf('=');
            settings.put(setting.substring(0, at), setting.substring(at + 1));
        }

        String lengths = (String) settings.remove("lengths.topic");
        String onFailure = (String) settings.remove("on.failure");

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> words = builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")));
        if (onFailure != null)
            words = words.peek((key, word) -> {
                if (word.equals("poison"))
                    throw new IllegalArgumentException(word);
            });
        words
            .groupBy((key, word) -> word, Grouped.<String, String>as("by-word").withKeySerde(Serdes.String()).withValueSerde(Serdes.String()))
            .count(Materialized.as("counts"))
            .mapValues(count -> Long.toString(count))
            .toStream()
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));
        if (lengths != null)
            words
                .groupBy((key, word) -> String.valueOf(word.length()), Grouped.<String, String>as("by-length").withKeySerde(Serdes.String()).withValueSerde(Serdes.String()))
                .count(Materialized.as("lengths"))
                .mapValues(count -> Long.toString(count))
                .toStream()
                .to(lengths, Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch over = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            System.out.println("STATE " + now);
            if (now == KafkaStreams.State.ERROR)
                over.countDown();
        });
        streams.setUncaughtExceptionHandler(failure -> {
            System.out.println("FAILED " + failure);
            failure.printStackTrace(System.out);
            return onFailure == null
                ? StreamThreadExceptionResponse.SHUTDOWN_CLIENT
                : StreamThreadExceptionResponse.valueOf(onFailure);
        });
        streams.setGlobalStateRestoreListener(new Restores());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            System.out.println(streams.close(Duration.ofSeconds(150)) ? "CLOSED" : "NOT CLOSED");
            System.out.flush();
        }));
        streams.start();
        over.await();
        System.exit(1);
    }

    private static final class Restores implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long to, long count) {
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            System.out.println("RESTORED " + partition + " " + total);
        }
    }
}
