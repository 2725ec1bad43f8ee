import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;

/** Administration: topics, partitions, configurations, records and the cluster itself, with the errors Kafka gives. */
final class AdminCases {
    private static final Optional<Integer> ALL = Optional.empty();
    private final Support support;

    AdminCases(Support support) {
        this.support = support;
    }

    void register(Cases cases) {
        cases.add("topics", "create with partitions; list; describe", this::create);
        cases.add("topics", "create with replicas named by hand", this::createAssigned);
        cases.add("topics", "create with the broker's defaults (-1)", this::createDefaults);
        cases.add("topics", "the answer to create tells id, partitions and configuration", this::createAnswer);
        cases.add("topics", "validate only: nothing is created", this::validateOnly);
        cases.add("topics", "creating an existing topic is refused", this::duplicate);
        cases.add("topics", "an invalid name is refused: two words", () -> refusedTopic(new NewTopic("two words", 1, (short) 1), Errors.INVALID_TOPIC_EXCEPTION));
        cases.add("topics", "an invalid name is refused: ..", () -> refusedTopic(new NewTopic("..", 1, (short) 1), Errors.INVALID_TOPIC_EXCEPTION));
        cases.add("topics", "names that collide in metrics (. and _) are refused", this::collision);
        cases.add("topics", "too many replicas are refused", () -> refusedTopic(new NewTopic(support.name(), 1, (short) 50), Errors.INVALID_REPLICATION_FACTOR));
        cases.add("topics", "no partitions are refused", () -> refusedTopic(new NewTopic(support.name(), 0, (short) 1), Errors.INVALID_PARTITIONS));
        cases.add("topics", "a replica on an unknown broker is refused", () -> refusedTopic(
            new NewTopic(support.name(), Map.of(0, List.of(4711))), Errors.INVALID_REPLICA_ASSIGNMENT));
        cases.add("topics", "delete: gone, and usable again, empty", this::delete);
        cases.add("topics", "describe and delete by topic id", this::byId);
        cases.add("topics", "deleting an unknown topic is refused", () -> Support.refused(
            () -> Support.get(support.admin.deleteTopics(List.of(support.name())).all()), Errors.UNKNOWN_TOPIC_OR_PARTITION));
        cases.add("topics", "add partitions; records go there", this::morePartitions);
        cases.add("topics", "fewer or equally many partitions are refused", this::fewerPartitions);
        cases.add("topics", "__consumer_offsets is listed once a group exists", this::internal);
        cases.add("topics", "a hundred topics in one request", this::hundred);
        cases.add("configurations", "a topic's configuration: defaults and what was given", this::describeConfig);
        cases.add("configurations", "alter a topic's configuration, and back", this::alter);
        cases.add("configurations", "append to and subtract from a list", this::appendSubtract);
        cases.add("configurations", "an unknown key or a bad value is refused when creating", this::badConfig);
        cases.add("configurations", "an unknown key or a bad value is refused when altering", this::badAlter);
        cases.add("configurations", "the configuration of an unknown topic is refused", () -> Support.refused(
            () -> set(support.name(), "retention.ms", "1"), Errors.UNKNOWN_TOPIC_OR_PARTITION));
        cases.add("configurations", "a broker's configuration", this::describeBroker);
        cases.add("configurations", "values come with source, synonyms and documentation", this::synonyms);
        cases.add("cluster and records", "describe the cluster", this::cluster);
        cases.add("cluster and records", "delete records: the beginning moves", this::deleteRecords);
        cases.add("cluster and records", "deleting records beyond the end is refused", this::deleteBeyond);
        cases.add("cluster and records", "a topic nobody knows is unknown", () -> Support.refused(
            () -> support.describe(support.name()), Errors.UNKNOWN_TOPIC_OR_PARTITION));
        cases.add("cluster and records", "list offsets: earliest, latest, for a time", this::listOffsets);
        cases.add("cluster and records", "describe the log directories", this::logDirs);
        cases.add("cluster and records", "describe the features", this::features);
        cases.add("cluster and records", "describe where a replica lies", this::replicaLogDirs);
        cases.add("cluster and records", "describe the active producers of a partition", this::producers);
        cases.add("cluster and records", "electing the leader there is, is not needed", () -> election(support.topic(1), Errors.ELECTION_NOT_NEEDED));
        cases.add("cluster and records", "electing a leader for an unknown topic is refused", () -> election(support.name(), Errors.UNKNOWN_TOPIC_OR_PARTITION));
        cases.add("cluster and records", "no reassignments are under way; a bad one is refused", this::reassignments);
    }

    private void refusedTopic(NewTopic topic, Errors error) throws Exception {
        Support.refused(() -> Support.get(support.admin.createTopics(List.of(topic)).all()), error);
    }

    private int broker() throws Exception {
        return Support.get(support.admin.describeCluster().nodes()).iterator().next().id();
    }

    private static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private Config config(ConfigResource resource) throws Exception {
        return Support.get(support.admin.describeConfigs(List.of(resource)).all()).get(resource);
    }

    private String value(String topic, String key) throws Exception {
        return config(resource(topic)).get(key).value();
    }

    private void change(String topic, AlterConfigOp.OpType operation, String key, String value) throws Exception {
        Collection<AlterConfigOp> changes = List.of(new AlterConfigOp(new ConfigEntry(key, value), operation));
        Support.get(support.admin.incrementalAlterConfigs(Map.of(resource(topic), changes)).all());
    }

    private void set(String topic, String key, String value) throws Exception {
        change(topic, AlterConfigOp.OpType.SET, key, value);
    }

    private void create() throws Exception {
        String topic = support.topic(4);
        Support.check(Support.get(support.admin.listTopics().names()).contains(topic), "listed");
        TopicDescription found = support.describe(topic);
        Support.equal(4, found.partitions().size(), "partitions");
        Support.check(!found.topicId().equals(Uuid.ZERO_UUID), "a topic id");
        Support.check(!found.isInternal(), "not internal");
        found.partitions().forEach(one -> Support.check(
            one.isr().equals(one.replicas()) && one.replicas().size() == 1 && one.leader().equals(one.replicas().get(0)), "replicas " + one));
    }

    private void createAssigned() throws Exception {
        String topic = support.name();
        support.create(new NewTopic(topic, Map.of(0, List.of(broker()), 1, List.of(broker()))));
        Support.equal(2, support.describe(topic).partitions().size(), "partitions");
    }

    private void createDefaults() throws Exception {
        String topic = support.name();
        Support.get(support.admin.createTopics(List.of(new NewTopic(topic, Optional.empty(), Optional.empty()))).all());
        String partitions = config(new ConfigResource(ConfigResource.Type.BROKER, "" + broker())).get("num.partitions").value();
        Support.waitUntil("the topic", () -> support.visible(topic, Integer.parseInt(partitions)));
    }

    private void createAnswer() throws Exception {
        String topic = support.name();
        CreateTopicsResult answer = support.admin.createTopics(
            List.of(new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "1234"))));
        Support.equal(3, Support.get(answer.numPartitions(topic)), "partitions");
        Support.equal(1, Support.get(answer.replicationFactor(topic)), "replicas");
        Support.equal("1234", Support.get(answer.config(topic)).get("retention.ms").value(), "retention.ms");
        Support.equal("delete", Support.get(answer.config(topic)).get("cleanup.policy").value(), "cleanup.policy");
        Uuid id = Support.get(answer.topicId(topic));
        Support.waitUntil("the topic", () -> support.visible(topic, 3));
        Support.equal(id, support.describe(topic).topicId(), "topic id");
    }

    private void validateOnly() throws Exception {
        String topic = support.name();
        CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(true);
        Support.get(support.admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1)), options).all());
        Support.check(!Support.get(support.admin.listTopics().names()).contains(topic), "not created");
        Support.refused(
            () -> Support.get(support.admin.createTopics(List.of(new NewTopic(topic, 0, (short) 1)), options).all()),
            Errors.INVALID_PARTITIONS);
    }

    private void duplicate() throws Exception {
        refusedTopic(new NewTopic(support.topic(1), 2, (short) 1), Errors.TOPIC_ALREADY_EXISTS);
    }

    private void collision() throws Exception {
        String stem = support.name();
        support.create(new NewTopic(stem + ".a_b", 1, (short) 1));
        refusedTopic(new NewTopic(stem + "_a.b", 1, (short) 1), Errors.INVALID_TOPIC_EXCEPTION);
    }

    private void delete() throws Exception {
        String topic = support.topic(2);
        support.produce(Support.texts(topic, 0, "old", 5));
        Uuid before = support.describe(topic).topicId();
        Support.get(support.admin.deleteTopics(List.of(topic)).all());
        Support.waitUntil("the topic is gone", () -> !Support.get(support.admin.listTopics().names()).contains(topic));
        support.create(new NewTopic(topic, 1, (short) 1));
        Support.check(!before.equals(support.describe(topic).topicId()), "a new topic id");
        var records = Support.texts(topic, 0, "new", 3);
        support.produce(records);
        Support.equal(Support.sent(records, ALL), Support.contents(support.readTopic(topic, 1, 3), ALL), "content");
    }

    private void byId() throws Exception {
        String topic = support.topic(1);
        Uuid id = support.describe(topic).topicId();
        Support.equal(topic, Support.get(
            support.admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds()).get(id).name(), "name");
        Support.get(support.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
        Support.waitUntil("the topic is gone", () -> !Support.get(support.admin.listTopics().names()).contains(topic));
        Support.refused(
            () -> Support.get(support.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all()), Errors.UNKNOWN_TOPIC_ID);
    }

    private void morePartitions() throws Exception {
        String topic = support.topic(1);
        support.produce(Support.texts(topic, 0, "record", 2));
        Support.get(support.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all());
        Support.waitUntil("three partitions", () -> support.visible(topic, 3));
        support.produce(Support.texts(topic, 2, "record", 4));
        Support.equal(6, support.readTopic(topic, 3, 6).size(), "records");
    }

    private void fewerPartitions() throws Exception {
        String topic = support.topic(3);
        for (int total = 2; total <= 3; total++) {
            NewPartitions wanted = NewPartitions.increaseTo(total);
            Support.refused(() -> Support.get(support.admin.createPartitions(Map.of(topic, wanted)).all()), Errors.INVALID_PARTITIONS);
        }
        Support.refused(
            () -> Support.get(support.admin.createPartitions(Map.of(support.name(), NewPartitions.increaseTo(2))).all()),
            Errors.UNKNOWN_TOPIC_OR_PARTITION);
    }

    private void internal() throws Exception {
        String topic = support.topic(1);
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of("group.id", support.name()), Support.partitions(topic, 1))) {
            consumer.commitSync(Map.of(new TopicPartition(topic, 0), new org.apache.kafka.clients.consumer.OffsetAndMetadata(0)));
        }
        var found = Support.get(support.admin.listTopics(new ListTopicsOptions().listInternal(true)).namesToListings());
        Support.check(found.containsKey("__consumer_offsets") && found.get("__consumer_offsets").isInternal(), "listed as internal");
        Support.check(!Support.get(support.admin.listTopics().names()).contains("__consumer_offsets"), "hidden by default");
    }

    private void hundred() throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        List<String> names = new ArrayList<>();
        for (int n = 0; n < 100; n++) {
            names.add(support.name());
            topics.add(new NewTopic(names.get(n), 2, (short) 1));
        }
        Support.get(support.admin.createTopics(topics).all());
        Support.waitUntil("all of them", () -> Support.get(support.admin.listTopics().names()).containsAll(names));
        Support.get(support.admin.deleteTopics(names).all());
        Support.waitUntil("none of them", () -> Support.get(support.admin.listTopics().names()).stream().noneMatch(names::contains));
    }

    private void describeConfig() throws Exception {
        String topic = support.topic(1, Map.of("retention.ms", "123456", "max.message.bytes", "54321"));
        Map<String, String> wanted = Map.of(
            "retention.ms", "123456", "max.message.bytes", "54321", "cleanup.policy", "delete", "compression.type", "producer",
            "min.insync.replicas", "1", "segment.bytes", "1073741824", "message.timestamp.type", "CreateTime");
        for (Map.Entry<String, String> one : wanted.entrySet()) {
            Support.equal(one.getValue(), value(topic, one.getKey()), one.getKey());
        }
    }

    private void alter() throws Exception {
        String topic = support.topic(1, Map.of("retention.ms", "111"));
        set(topic, "retention.ms", "222");
        set(topic, "retention.bytes", "5000");
        Support.waitUntil("the new value", () -> value(topic, "retention.bytes").equals("5000"));
        Support.equal("222", value(topic, "retention.ms"), "retention.ms");
        change(topic, AlterConfigOp.OpType.DELETE, "retention.ms", "");
        Support.waitUntil("the default again", () -> value(topic, "retention.ms").equals("604800000"));
        Support.equal("5000", value(topic, "retention.bytes"), "retention.bytes");
    }

    private void appendSubtract() throws Exception {
        String topic = support.topic(1);
        change(topic, AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact");
        Support.waitUntil("both policies", () -> value(topic, "cleanup.policy").equals("delete,compact"));
        change(topic, AlterConfigOp.OpType.SUBTRACT, "cleanup.policy", "delete");
        Support.waitUntil("one policy", () -> value(topic, "cleanup.policy").equals("compact"));
    }

    private void badConfig() throws Exception {
        List<Map<String, String>> bad = List.of(
            Map.of("no.such.key", "1"), Map.of("retention.ms", "soon"), Map.of("cleanup.policy", "burn"), Map.of("segment.bytes", "-5"));
        for (Map<String, String> config : bad) {
            refusedTopic(new NewTopic(support.name(), 1, (short) 1).configs(config), Errors.INVALID_CONFIG);
        }
    }

    private void badAlter() throws Exception {
        String topic = support.topic(1);
        Support.refused(() -> set(topic, "no.such.key", "1"), Errors.INVALID_CONFIG);
        Support.refused(() -> set(topic, "retention.ms", "soon"), Errors.INVALID_CONFIG);
        Support.refused(() -> set(topic, "cleanup.policy", "burn"), Errors.INVALID_CONFIG);
        Support.equal("604800000", value(topic, "retention.ms"), "retention.ms");
    }

    private void describeBroker() throws Exception {
        Config found = config(new ConfigResource(ConfigResource.Type.BROKER, "" + broker()));
        Support.check(Integer.parseInt(found.get("num.partitions").value()) >= 1, "num.partitions");
        Support.check(Integer.parseInt(found.get("message.max.bytes").value()) >= 1_000_000, "message.max.bytes");
        Support.check(found.get("num.partitions").isReadOnly(), "num.partitions is read-only");
        Support.check(!found.get("message.max.bytes").isReadOnly(), "message.max.bytes is not read-only");
        Support.check(found.get("advertised.listeners") != null, "advertised.listeners");
    }

    private void synonyms() throws Exception {
        String topic = support.topic(1, Map.of("retention.ms", "123456"));
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Config found = Support.get(support.admin.describeConfigs(List.of(resource(topic)), options).all()).get(resource(topic));
        ConfigEntry given = found.get("retention.ms");
        Support.equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, given.source(), "source of a given value");
        Support.equal("123456", given.synonyms().get(0).value(), "first synonym");
        Support.equal(ConfigEntry.ConfigType.LONG, given.type(), "type");
        Support.check(given.documentation() != null && !given.documentation().isEmpty(), "documentation");
        ConfigEntry standard = found.get("segment.bytes");
        Support.equal(ConfigEntry.ConfigSource.DEFAULT_CONFIG, standard.source(), "source of a default");
        Support.equal("log.segment.bytes", standard.synonyms().get(0).name(), "synonym of a default");
    }

    private void cluster() throws Exception {
        DescribeClusterResult found = support.admin.describeCluster();
        Support.check(!Support.get(found.clusterId()).isEmpty(), "a cluster id");
        Support.check(Support.get(found.nodes()).contains(Support.get(found.controller())), "the controller is a node");
    }

    private void deleteRecords() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "record", 30), Map.of("batch.size", 300));
        var answer = support.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(12)));
        Support.equal(12L, Support.get(answer.lowWatermarks().get(partition)).lowWatermark(), "low watermark");
        Support.equal(Support.range(12, 30), Support.offsets(support.readTopic(topic, 1, 18)), "offsets");
        answer = support.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1)));
        Support.equal(30L, Support.get(answer.lowWatermarks().get(partition)).lowWatermark(), "low watermark");
    }

    private void deleteBeyond() throws Exception {
        String topic = support.topic(1);
        support.produce(Support.texts(topic, 0, "record", 3));
        Support.refused(
            () -> Support.get(support.admin.deleteRecords(Map.of(new TopicPartition(topic, 0), RecordsToDelete.beforeOffset(4))).all()),
            Errors.OFFSET_OUT_OF_RANGE);
    }

    private void listOffsets() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "record", 9));
        Map<OffsetSpec, Long> wanted = new HashMap<>(Map.of(
            OffsetSpec.earliest(), 0L, OffsetSpec.latest(), 9L, OffsetSpec.forTimestamp(0), 0L,
            OffsetSpec.forTimestamp(System.currentTimeMillis() + 100_000), -1L));
        for (Map.Entry<OffsetSpec, Long> one : wanted.entrySet()) {
            Support.equal(one.getValue(), Support.get(
                support.admin.listOffsets(Map.of(partition, one.getKey())).partitionResult(partition)).offset(), "offset");
        }
    }

    private void logDirs() throws Exception {
        String topic = support.topic(2);
        TopicPartition partition = new TopicPartition(topic, 1);
        support.produce(Support.texts(topic, 1, "record", 100));
        int broker = broker();
        Map<String, LogDirDescription> found = Support.get(support.admin.describeLogDirs(Set.of(broker)).allDescriptions()).get(broker);
        List<Long> sizes = new ArrayList<>();
        for (LogDirDescription one : found.values()) {
            Support.check(one.error() == null, "no error");
            Support.check(one.totalBytes().getAsLong() > 0 && one.usableBytes().getAsLong() > 0, "sizes of the volume");
            if (one.replicaInfos().containsKey(partition)) {
                sizes.add(one.replicaInfos().get(partition).size());
            }
        }
        Support.check(sizes.size() == 1 && sizes.get(0) > 100, "one replica with a size, found " + sizes);
    }

    private void replicaLogDirs() throws Exception {
        TopicPartitionReplica replica = new TopicPartitionReplica(support.topic(1), 0, broker());
        var found = Support.get(support.admin.describeReplicaLogDirs(List.of(replica)).all()).get(replica);
        Support.check(found.getCurrentReplicaLogDir() != null && found.getFutureReplicaLogDir() == null, "a directory, no other to come");
    }

    private void producers() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "record", 7), Map.of("enable.idempotence", "true"));
        var found = Support.get(support.admin.describeProducers(List.of(partition)).partitionResult(partition)).activeProducers();
        Support.equal(1, found.size(), "producers");
        Support.equal(6, found.get(0).lastSequence(), "last sequence");
        Support.equal(0, found.get(0).producerEpoch(), "epoch");
    }

    private void election(String topic, Errors expected) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        var found = Support.get(support.admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions());
        Support.equal(expected, Errors.forException(found.get(partition).orElse(null)), "outcome");
    }

    private void reassignments() throws Exception {
        TopicPartition partition = new TopicPartition(support.topic(1), 0);
        Support.equal(Map.of(), Support.get(support.admin.listPartitionReassignments(Set.of(partition)).reassignments()), "reassignments");
        Support.refused(() -> Support.get(support.admin.alterPartitionReassignments(
            Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(4711))))).all()), Errors.INVALID_REPLICA_ASSIGNMENT);
        Support.refused(() -> Support.get(support.admin.alterPartitionReassignments(
            Map.of(partition, Optional.empty())).all()), Errors.NO_REASSIGNMENT_IN_PROGRESS);
    }

    private void features() throws Exception {
        Support.check(Support.get(support.admin.describeFeatures().featureMetadata()).supportedFeatures() != null, "an answer");
    }
}
