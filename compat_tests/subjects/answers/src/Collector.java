import java.util.List;
import java.util.Map;

import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** A metric.reporters of Apache Kafka that takes what clients push, so that their requests are served. */
public final class Collector implements MetricsReporter, ClientTelemetry {
    @Override
    public void configure(Map<String, ?> configs) {
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return new ClientTelemetryReceiver() {
            @Override
            public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
                byte[] data = new byte[payload.data().remaining()];
                payload.data().duplicate().get(data);
                if (data.length > 0 && data[0] != 0x0a) {
                    throw new IllegalArgumentException("not OTLP: field 1, the resources, comes first");
                }
            }
        };
    }
}
