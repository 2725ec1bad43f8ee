import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Logs in, sends a record every quarter of a second for so many milliseconds (0: one), and until it has logged in again,
 * a minute at most; says how it went.
 */
public class Logins {
    public static void main(String[] args) throws Exception {
        String mechanism = args[1];
        long millis = Long.parseLong(args[5]);
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", mechanism);
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security." + module + " required username=\"" + args[2]
            + "\" password=\"" + args[3] + "\";");
        settings.put("max.block.ms", "20000");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        int sent = 0;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            long end = System.currentTimeMillis() + millis;
            do {
                producer.send(new ProducerRecord<>(args[4], "java".getBytes())).get();
                sent++;
                Thread.sleep(millis > 0 ? 250 : 0);
            } while (System.currentTimeMillis() < end
                || millis > 0 && !hasLoggedInAgain(producer) && System.currentTimeMillis() < end + 60_000);
            System.out.println("sent " + sent + (hasLoggedInAgain(producer) ? " and logged in again" : ""));
        } catch (ExecutionException | SaslAuthenticationException error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            if (!(cause instanceof SaslAuthenticationException)) {
                throw error;
            }
            System.out.println("refused");
        }
    }

    private static boolean hasLoggedInAgain(KafkaProducer<byte[], byte[]> producer) {
        return producer.metrics().entrySet().stream()
            .filter(entry -> entry.getKey().name().equals("successful-reauthentication-total"))
            .anyMatch(entry -> (Double) entry.getValue().metricValue() > 0);
    }
}
