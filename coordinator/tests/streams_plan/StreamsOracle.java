// Reads one question a line, a JSON object, and answers it by Apache Kafka's own classes, a line each.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.FencedMemberEpochException;
import org.apache.kafka.common.errors.StreamsInvalidTopologyException;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValueJsonConverter;
import org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder;
import org.apache.kafka.coordinator.group.streams.MemberState;
import org.apache.kafka.coordinator.group.streams.StreamsGroupMember;
import org.apache.kafka.coordinator.group.streams.StreamsTopology;
import org.apache.kafka.coordinator.group.streams.TasksTuple;
import org.apache.kafka.coordinator.group.streams.TasksTupleWithEpochs;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.streams.topics.InternalTopicManager;
import org.slf4j.helpers.NOPLogger;

public class StreamsOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = JSON.readTree(line);
            Object answer;
            switch (asked.get("what").asText()) {
                case "assign": answer = assign(asked); break;
                case "step": answer = step(asked); break;
                default: answer = configure(asked);
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static Object assign(JsonNode asked) {
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        for (JsonNode member : asked.get("members")) {
            members.put(member.get(0).asText(), new AssignmentMemberSpec(
                Optional.empty(), Optional.empty(), tasks(member.get(2)), tasks(member.get(3)), Map.of(),
                member.get(1).asText(), Map.of(), Map.of(), Map.of()));
        }
        JsonNode works = asked.get("subtopologies");
        TopologyDescriber describer = new TopologyDescriber() {
            public List<String> subtopologies() {
                List<String> found = new ArrayList<>();
                works.fieldNames().forEachRemaining(found::add);
                return found;
            }
            public int maxNumInputPartitions(String id) { return works.get(id).get(0).asInt(); }
            public boolean isStateful(String id) { return works.get(id).get(1).asBoolean(); }
        };
        Map<String, String> configs = Map.of("num.standby.replicas", asked.get("replicas").asText());
        Map<String, Object> answer = new TreeMap<>();
        new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), describer).members().forEach(
            (id, given) -> answer.put(id, List.of(sorted(given.activeTasks()), sorted(given.standbyTasks()))));
        return answer;
    }

    private static Object step(JsonNode asked) {
        JsonNode was = asked.get("standing");
        JsonNode owners = asked.get("owners");
        JsonNode owned = asked.get("owned");
        StreamsGroupMember member = StreamsGroupMember.Builder.withDefaults("m")
            .setProcessId(asked.get("process").asText())
            .setMemberEpoch(was.get(0).asInt()).setPreviousMemberEpoch(was.get(1).asInt())
            .setState(MemberState.fromValue((byte) was.get(2).asInt()))
            .setAssignedTasks(held(was.get(3))).setTasksPendingRevocation(held(was.get(4)))
            .build();
        StreamsGroupMember next;
        try {
            next = new CurrentAssignmentBuilder(member)
                .withTargetAssignment(asked.get("epoch").asInt(), tuple(asked.get("target")))
                .withCurrentActiveTaskProcessId((id, partition) -> {
                    Set<String> processes = processes(owners.get(0), id, partition);
                    return processes.isEmpty() ? null : processes.iterator().next();
                })
                .withCurrentStandbyTaskProcessIds((id, partition) -> processes(owners.get(1), id, partition))
                .withCurrentWarmupTaskProcessIds((id, partition) -> processes(owners.get(2), id, partition))
                .withOwnedAssignment(owned.isNull() ? null : tuple(owned))
                .build();
        } catch (FencedMemberEpochException e) {
            return null;
        }
        return List.of(next.memberEpoch(), next.previousMemberEpoch(), (int) next.state().value(),
            told(next.assignedTasks()), told(next.tasksPendingRevocation()));
    }

    private static Object configure(JsonNode asked) {
        JsonNode counts = asked.get("partitions");
        CoordinatorMetadataImage image = new CoordinatorMetadataImage() {
            public Set<Uuid> topicIds() { return Set.of(); }
            public Set<String> topicNames() { return Set.of(); }
            public Optional<TopicMetadata> topicMetadata(String name) {
                return counts.has(name) ? Optional.of(new Topic(name, counts.get(name).asInt())) : Optional.empty();
            }
            public Optional<TopicMetadata> topicMetadata(Uuid id) { return Optional.empty(); }
            public CoordinatorMetadataDelta emptyDelta() { return null; }
            public long version() { return 0; }
            public boolean isEmpty() { return false; }
        };
        StreamsTopology topology = StreamsTopology.fromRecord(
            StreamsGroupTopologyValueJsonConverter.read(asked.get("topology"), (short) 0));
        Map<String, Object> answer = new TreeMap<>();
        try {
            var configured = InternalTopicManager.configureTopics(
                NOPLogger.NOP_LOGGER, "g", "m", 0, topology, image, Time.SYSTEM);
            answer.put("status", configured.topicConfigurationException()
                .map(e -> (Object) (int) e.status().code()).orElse(-1));
            Map<String, Object> found = new TreeMap<>();
            configured.subtopologies().ifPresent(all -> all.forEach((id, subtopology) -> {
                Map<String, Integer> internal = new TreeMap<>();
                subtopology.repartitionSourceTopics().values().forEach(t -> internal.put(t.name(), t.numberOfPartitions()));
                subtopology.stateChangelogTopics().values().forEach(t -> internal.put(t.name(), t.numberOfPartitions()));
                found.put(id, List.of(subtopology.numberOfTasks(), internal));
            }));
            answer.put("subtopologies", found);
            Map<String, Object> wanted = new TreeMap<>();
            configured.internalTopicsToBeCreated().forEach((name, topic) -> {
                Map<String, String> configs = new TreeMap<>();
                topic.configs().forEach(config -> configs.put(config.name(), config.value()));
                wanted.put(name, List.of(topic.numPartitions(), (int) topic.replicationFactor(), configs));
            });
            answer.put("wanted", wanted);
        } catch (StreamsInvalidTopologyException e) {
            answer.put("status", 130);
        }
        return answer;
    }

    private record Topic(String name, int partitionCount) implements CoordinatorMetadataImage.TopicMetadata {
        public Uuid id() { return Uuid.ZERO_UUID; }
        public List<String> partitionRacks(int partition) { return List.of(); }
    }

    private static Set<String> processes(JsonNode owners, String id, int partition) {
        Set<String> found = new HashSet<>();
        owners.path(id).path(Integer.toString(partition)).forEach(process -> found.add(process.asText()));
        return found;
    }

    private static TasksTuple tuple(JsonNode roles) {
        return new TasksTuple(tasks(roles.get(0)), tasks(roles.get(1)), tasks(roles.get(2)));
    }

    private static TasksTupleWithEpochs held(JsonNode roles) {
        Map<String, Map<Integer, Integer>> active = new HashMap<>();
        roles.get(0).fields().forEachRemaining(each -> {
            Map<Integer, Integer> epochs = new HashMap<>();
            each.getValue().fields().forEachRemaining(e -> epochs.put(Integer.valueOf(e.getKey()), e.getValue().asInt()));
            active.put(each.getKey(), epochs);
        });
        return new TasksTupleWithEpochs(active, tasks(roles.get(1)), tasks(roles.get(2)));
    }

    private static Map<String, Set<Integer>> tasks(JsonNode node) {
        Map<String, Set<Integer>> found = new HashMap<>();
        node.fields().forEachRemaining(each -> {
            Set<Integer> partitions = new HashSet<>();
            each.getValue().forEach(partition -> partitions.add(partition.asInt()));
            found.put(each.getKey(), partitions);
        });
        return found;
    }

    private static Object told(TasksTupleWithEpochs held) {
        Map<String, Object> active = new TreeMap<>();
        held.activeTasksWithEpochs().forEach((id, epochs) -> active.put(id, new TreeMap<>(epochs)));
        return List.of(active, sorted(held.standbyTasks()), sorted(held.warmupTasks()));
    }

    private static Map<String, Object> sorted(Map<String, Set<Integer>> tasks) {
        Map<String, Object> found = new TreeMap<>();
        tasks.forEach((id, partitions) -> found.put(id, new TreeSet<>(partitions)));
        return found;
    }
}
