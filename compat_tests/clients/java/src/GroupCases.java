import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListConsumerGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;

/** Consumer groups (the classic protocol): members, offsets, and groups seen from outside. */
final class GroupCases {
    private static final String ASSIGNORS = "org.apache.kafka.clients.consumer.";
    /** A session that does not end while a case waits for something else. */
    private static final int LONG_MS = 2 * (int) Support.DEADLINE_MS;
    private final Support support;

    GroupCases(Support support) {
        this.support = support;
    }

    void register(Cases cases) {
        cases.add("groups", "one member gets everything and reads it", this::oneMember);
        cases.add("groups", "commit, restart, resume", this::resume);
        cases.add("groups", "without a commit a restart reads again", this::noCommit);
        cases.add("groups", "explicit offsets are committed and kept", this::explicitCommit);
        cases.add("groups", "commits without membership, by assignment", this::standalone);
        cases.add("groups", "two join, a third joins, one leaves: disjoint and complete (range)", () -> rebalance("RangeAssignor"));
        cases.add("groups", "two join, a third joins, one leaves: disjoint and complete (roundrobin)", () -> rebalance("RoundRobinAssignor"));
        cases.add("groups", "two join, a third joins, one leaves: disjoint and complete (sticky)", () -> rebalance("StickyAssignor"));
        cases.add("groups", "cooperative-sticky: members keep what they have", this::cooperative);
        cases.add("groups", "a static member restarts without a rebalance", this::staticMember);
        cases.add("groups", "a static member that stays away is expelled after its session timeout", this::staticExpelled);
        cases.add("groups", "a second member of the same instance fences the first", this::fenced);
        cases.add("groups", "a member that stops polling loses its partitions", this::stopsPolling);
        cases.add("groups", "subscription by pattern finds topics, also later ones", this::pattern);
        cases.add("groups", "new partitions of a subscribed topic are handed out", this::morePartitions);
        cases.add("groups", "a session timeout below the broker's minimum is refused", this::sessionTooShort);
        cases.add("groups", "members without a common assignor are refused", this::inconsistent);
        cases.add("groups", "offsets carry metadata", this::metadata);
        cases.add("groups", "automatic commits on close", this::autoCommit);
        cases.add("groups, administration", "a live group is listed and described with its assignment", this::describe);
        cases.add("groups, administration", "a left group is Empty and keeps its offsets", this::empty);
        cases.add("groups, administration", "groups are listed by state", this::listByState);
        cases.add("groups, administration", "offsets of a group nobody knows are none", () -> Support.equal(Map.of(), offsets(support.name()), "offsets"));
        cases.add("groups, administration", "delete an empty group", this::delete);
        cases.add("groups, administration", "deleting a live group is refused", this::deleteLive);
        cases.add("groups, administration", "deleting an unknown group is refused", () -> Support.refused(
            () -> Support.get(support.admin.deleteConsumerGroups(List.of(support.name())).all()), Errors.GROUP_ID_NOT_FOUND));
        cases.add("groups, administration", "reset the offsets of an empty group", this::reset);
        cases.add("groups, administration", "resetting the offsets of a live group is refused", this::resetLive);
        cases.add("groups, administration", "offsets may be set for a group that does not exist yet", this::createByOffsets);
        cases.add("groups, administration", "delete offsets", this::deleteOffsets);
        cases.add("groups, administration", "deleting offsets of a subscribed topic is refused", this::deleteOffsetsLive);
        cases.add("groups, administration", "deleting a topic removes its committed offsets", this::topicDeleted);
        cases.add("groups, administration", "members are removed from outside", this::removeMembers);
    }

    private static Map<String, Object> assignor(String name) {
        return Map.of("partition.assignment.strategy", ASSIGNORS + name);
    }

    private Map<TopicPartition, Long> offsets(String group) throws Exception {
        Map<TopicPartition, Long> found = new HashMap<>();
        Support.get(support.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata())
            .forEach((partition, offset) -> found.put(partition, offset == null ? null : offset.offset()));
        return found;
    }

    private void alter(String group, TopicPartition partition, long offset) throws Exception {
        Support.get(support.admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(offset))).all());
    }

    private ConsumerGroupDescription description(String group) throws Exception {
        return Support.get(support.admin.describeConsumerGroups(List.of(group)).all()).get(group);
    }

    /** Lets a member read a filled topic, commit and leave. */
    private void withCommit(String group, String topic) throws Exception {
        support.produce(Support.texts(topic, 0, "record", 10));
        try (KafkaConsumer<byte[], byte[]> member = support.member(group, topic, Map.of())) {
            Support.read(member, 10);
            member.commitSync();
        }
        // A consumer does not wait for the answer when it leaves.
        Support.waitUntil("the member has left", () -> description(group).members().isEmpty());
    }

    private void oneMember() throws Exception {
        String topic = support.topic(3);
        for (int index = 0; index < 3; index++) {
            support.produce(Support.texts(topic, index, "record", 20));
        }
        try (KafkaConsumer<byte[], byte[]> member = support.member(support.name(), topic, Map.of())) {
            Support.read(member, 60);
            Support.equal(new HashSet<>(Support.partitions(topic, 3)), member.assignment(), "assignment");
        }
    }

    private void resume() throws Exception {
        String topic = support.topic(1);
        String group = support.name();
        withCommit(group, topic);
        support.produce(Support.texts(topic, 0, "later", 5));
        try (KafkaConsumer<byte[], byte[]> member = support.member(group, topic, Map.of())) {
            Support.equal(Support.range(10, 15), Support.offsets(Support.read(member, 5)), "offsets");
        }
    }

    private void noCommit() throws Exception {
        String topic = support.topic(1);
        String group = support.name();
        TopicPartition partition = new TopicPartition(topic, 0);
        support.produce(Support.texts(topic, 0, "record", 10));
        for (int round = 0; round < 2; round++) {
            try (KafkaConsumer<byte[], byte[]> member = support.member(group, topic, Map.of())) {
                Support.read(member, 10);
                Support.equal(null, member.committed(Set.of(partition)).get(partition), "committed");
            }
        }
    }

    private void explicitCommit() throws Exception {
        String topic = support.topic(2);
        String group = support.name();
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        support.produce(Support.texts(topic, 0, "record", 20));
        support.produce(Support.texts(topic, 1, "record", 20));
        try (KafkaConsumer<byte[], byte[]> member = support.member(group, topic, Map.of())) {
            Support.read(member, 40);
            member.commitSync(Map.of(first, new OffsetAndMetadata(7), second, new OffsetAndMetadata(13)));
            AtomicReference<Exception> outcome = new AtomicReference<>(new IllegalStateException("no answer to the commit"));
            member.commitAsync(Map.of(second, new OffsetAndMetadata(3)), (committed, problem) -> outcome.set(problem));
            Support.waitUntil("the answer to the asynchronous commit", () -> {
                Support.poll(member, 50);
                return outcome.get() == null;
            });
        }
        Support.equal(Map.of(first, 7L, second, 3L), offsets(group), "offsets");
        try (KafkaConsumer<byte[], byte[]> member = support.member(group, topic, Map.of())) {
            Support.read(member, 30);
        }
    }

    private void standalone() throws Exception {
        String topic = support.topic(1);
        String group = support.name();
        support.produce(Support.texts(topic, 0, "record", 8));
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of("group.id", group), Support.partitions(topic, 1))) {
            Support.read(consumer, 8);
            consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(5)));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of("group.id", group), Support.partitions(topic, 1))) {
            Support.equal(Support.range(5, 8), Support.offsets(Support.read(consumer, 3)), "offsets");
        }
    }

    private void rebalance(String assignor) throws Exception {
        String topic = support.topic(6);
        String group = support.name();
        List<TopicPartition> everything = Support.partitions(topic, 6);
        try (KafkaConsumer<byte[], byte[]> first = support.member(group, topic, assignor(assignor));
             KafkaConsumer<byte[], byte[]> second = support.member(group, topic, assignor(assignor))) {
            Support.settle(List.of(first, second), everything);
            Support.equal(3, first.assignment().size(), "partitions of the first of two");
            try (KafkaConsumer<byte[], byte[]> third = support.member(group, topic, assignor(assignor))) {
                Support.settle(List.of(first, second, third), everything);
                Support.equal(2, third.assignment().size(), "partitions of the third");
            }
            Support.settle(List.of(first, second), everything);
            Support.equal(3, second.assignment().size(), "partitions of the second of two");
        }
    }

    private void cooperative() throws Exception {
        String topic = support.topic(6);
        String group = support.name();
        List<TopicPartition> everything = Support.partitions(topic, 6);
        Map<String, Object> config = assignor("CooperativeStickyAssignor");
        try (KafkaConsumer<byte[], byte[]> first = support.member(group, topic, config)) {
            Support.settle(List.of(first), everything);
            Set<TopicPartition> kept;
            try (KafkaConsumer<byte[], byte[]> second = support.member(group, topic, config)) {
                Support.settle(List.of(first, second), everything);
                kept = first.assignment();
                Support.equal(3, kept.size(), "partitions kept");
            }
            Support.settle(List.of(first), everything);
            Support.check(first.assignment().containsAll(kept), "what it had it still has");
        }
    }

    private KafkaConsumer<byte[], byte[]> instance(String group, String topic, String instance, int sessionMillis) {
        return support.member(group, topic, Map.of("group.instance.id", instance, "session.timeout.ms", "" + sessionMillis));
    }

    private void staticMember() throws Exception {
        String topic = support.topic(4);
        String group = support.name();
        List<TopicPartition> everything = Support.partitions(topic, 4);
        try (KafkaConsumer<byte[], byte[]> first = instance(group, topic, "one", LONG_MS)) {
            KafkaConsumer<byte[], byte[]> second = instance(group, topic, "two", LONG_MS);
            Support.settle(List.of(first, second), everything);
            Set<TopicPartition> mine = first.assignment();
            Set<TopicPartition> theirs = second.assignment();
            int generation = first.groupMetadata().generationId();
            second.close();
            for (int n = 0; n < 10; n++) {
                Support.poll(first, 50);
            }
            Support.equal(mine, first.assignment(), "nothing moves while the other is away");
            try (KafkaConsumer<byte[], byte[]> again = instance(group, topic, "two", LONG_MS)) {
                Support.settle(List.of(first, again), everything);
                Support.equal(theirs, again.assignment(), "assignment after the restart");
                Support.equal(generation, first.groupMetadata().generationId(), "generation");
            }
        }
    }

    private void staticExpelled() throws Exception {
        String topic = support.topic(4);
        String group = support.name();
        List<TopicPartition> everything = Support.partitions(topic, 4);
        try (KafkaConsumer<byte[], byte[]> stays = instance(group, topic, "stays", 6000)) {
            KafkaConsumer<byte[], byte[]> goes = instance(group, topic, "goes", 6000);
            Support.settle(List.of(stays, goes), everything);
            goes.close();
            Support.settle(List.of(stays), everything);
        }
    }

    private void fenced() throws Exception {
        String topic = support.topic(2);
        String group = support.name();
        List<TopicPartition> everything = Support.partitions(topic, 2);
        try (KafkaConsumer<byte[], byte[]> first = instance(group, topic, "same", LONG_MS)) {
            Support.settle(List.of(first), everything);
            try (KafkaConsumer<byte[], byte[]> second = instance(group, topic, "same", LONG_MS)) {
                Support.settle(List.of(second), everything);
                Support.refused(() -> Support.waitUntil("the fencing", () -> {
                    Support.poll(first, 100);
                    return false;
                }), Errors.FENCED_INSTANCE_ID);
            }
        }
    }

    private void stopsPolling() throws Exception {
        String topic = support.topic(2);
        String group = support.name();
        List<TopicPartition> everything = Support.partitions(topic, 2);
        Map<String, Object> config = Map.of("max.poll.interval.ms", "6500", "session.timeout.ms", "6000");
        try (KafkaConsumer<byte[], byte[]> idle = support.member(group, topic, config);
             KafkaConsumer<byte[], byte[]> busy = support.member(group, topic, config)) {
            Support.settle(List.of(idle, busy), everything);
            // Named: a member commits nothing, and asks nobody, where it does not yet know its position.
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            idle.assignment().forEach(lost -> offsets.put(lost, new OffsetAndMetadata(0)));
            Support.settle(List.of(busy), everything);
            try {
                idle.commitSync(offsets);
                throw new AssertionError("a member that lost its partitions could commit");
            } catch (CommitFailedException expected) {
                Support.equal(everything.size(), busy.assignment().size(), "partitions of the busy one");
            }
        }
    }

    private void pattern() throws Exception {
        String stem = support.name();
        String first = stem + "-a";
        String second = stem + "-b";
        support.create(new org.apache.kafka.clients.admin.NewTopic(first, 1, (short) 1));
        support.produce(Support.texts(first, 0, "a", 3));
        try (KafkaConsumer<byte[], byte[]> member = support.consumer(Map.of("group.id", support.name()))) {
            member.subscribe(Pattern.compile(stem + "-.*"));
            Support.read(member, 3);
            member.commitSync();
            support.create(new org.apache.kafka.clients.admin.NewTopic(second, 1, (short) 1));
            support.produce(Support.texts(second, 0, "b", 4));
            Support.check(Support.read(member, 4).stream().allMatch(one -> one.topic().equals(second)), "records of the second topic");
        }
    }

    private void morePartitions() throws Exception {
        String topic = support.topic(1);
        try (KafkaConsumer<byte[], byte[]> member = support.member(support.name(), topic, Map.of())) {
            Support.settle(List.of(member), Support.partitions(topic, 1));
            Support.get(support.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all());
            Support.settle(List.of(member), Support.partitions(topic, 3));
        }
    }

    private void sessionTooShort() throws Exception {
        String topic = support.topic(1);
        try (KafkaConsumer<byte[], byte[]> member = support.member(support.name(), topic, Map.of("session.timeout.ms", "1000"))) {
            Support.refused(() -> Support.read(member, 1), Errors.INVALID_SESSION_TIMEOUT);
        }
    }

    private void inconsistent() throws Exception {
        String topic = support.topic(2);
        String group = support.name();
        try (KafkaConsumer<byte[], byte[]> first = support.member(group, topic, assignor("RangeAssignor"));
             KafkaConsumer<byte[], byte[]> second = support.member(group, topic, assignor("RoundRobinAssignor"))) {
            Support.settle(List.of(first), Support.partitions(topic, 2));
            Support.refused(() -> Support.read(second, 1), Errors.INCONSISTENT_GROUP_PROTOCOL);
        }
    }

    private void metadata() throws Exception {
        String topic = support.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        String group = support.name();
        OffsetAndMetadata given = new OffsetAndMetadata(3, java.util.Optional.of(0), "what for: größe");
        try (KafkaConsumer<byte[], byte[]> consumer = support.assigned(Map.of("group.id", group), List.of(partition))) {
            consumer.commitSync(Map.of(partition, given));
            Support.equal(given, consumer.committed(Set.of(partition)).get(partition), "committed");
            Support.refused(
                () -> consumer.commitSync(Map.of(partition, new OffsetAndMetadata(4, "x".repeat(5000)))), Errors.OFFSET_METADATA_TOO_LARGE);
        }
        Support.equal(Map.of(partition, 3L), offsets(group), "offsets");
    }

    private void autoCommit() throws Exception {
        String topic = support.topic(1);
        String group = support.name();
        support.produce(Support.texts(topic, 0, "record", 10));
        try (KafkaConsumer<byte[], byte[]> member = support.member(group, topic, Map.of("enable.auto.commit", "true"))) {
            Support.read(member, 10);
        }
        Support.equal(Map.of(new TopicPartition(topic, 0), 10L), offsets(group), "offsets");
    }

    private void describe() throws Exception {
        String topic = support.topic(3);
        String group = support.name();
        try (KafkaConsumer<byte[], byte[]> first = support.member(group, topic, Map.of("client.id", "one"));
             KafkaConsumer<byte[], byte[]> second = support.member(group, topic, Map.of("client.id", "two"))) {
            Support.settle(List.of(first, second), Support.partitions(topic, 3));
            Support.waitUntil("state Stable", () -> {
                Support.poll(first, 50);
                Support.poll(second, 50);
                return description(group).state().toString().equals("Stable");
            });
            ConsumerGroupDescription found = description(group);
            Map<String, Set<TopicPartition>> held = new HashMap<>();
            found.members().forEach(one -> held.put(one.clientId(), one.assignment().topicPartitions()));
            Support.equal(Map.of("one", first.assignment(), "two", second.assignment()), held, "assignments");
            Support.equal("range", found.partitionAssignor(), "assignor");
            Support.check(found.coordinator() != null, "a coordinator");
            Support.check(Support.get(support.admin.listConsumerGroups().all()).stream().anyMatch(one -> one.groupId().equals(group)), "listed");
        }
    }

    private void empty() throws Exception {
        String topic = support.topic(1);
        String group = support.name();
        withCommit(group, topic);
        Support.waitUntil("state Empty", () -> description(group).state().toString().equals("Empty"));
        Support.equal(Map.of(new TopicPartition(topic, 0), 10L), offsets(group), "offsets");
    }

    private void listByState() throws Exception {
        String topic = support.topic(1);
        String empty = support.name();
        String live = support.name();
        withCommit(empty, topic);
        try (KafkaConsumer<byte[], byte[]> member = support.member(live, topic, Map.of())) {
            Support.settle(List.of(member), Support.partitions(topic, 1));
            for (String state : List.of("Empty", "Stable")) {
                List<String> found = new ArrayList<>();
                Support.get(support.admin.listConsumerGroups(new ListConsumerGroupsOptions()
                    .inStates(Set.of(org.apache.kafka.common.ConsumerGroupState.parse(state)))).all())
                    .forEach(one -> found.add(one.groupId()));
                Support.equal(state.equals("Empty"), found.contains(empty), "the empty group among " + state);
                Support.equal(state.equals("Stable"), found.contains(live), "the live group among " + state);
            }
        }
    }

    private void delete() throws Exception {
        String topic = support.topic(1);
        String group = support.name();
        withCommit(group, topic);
        Support.get(support.admin.deleteConsumerGroups(List.of(group)).all());
        Support.equal(Map.of(), offsets(group), "offsets");
    }

    private void deleteLive() throws Exception {
        String topic = support.topic(1);
        String group = support.name();
        try (KafkaConsumer<byte[], byte[]> member = support.member(group, topic, Map.of())) {
            Support.settle(List.of(member), Support.partitions(topic, 1));
            Support.refused(() -> Support.get(support.admin.deleteConsumerGroups(List.of(group)).all()), Errors.NON_EMPTY_GROUP);
        }
    }

    private void reset() throws Exception {
        String topic = support.topic(1);
        String group = support.name();
        withCommit(group, topic);
        alter(group, new TopicPartition(topic, 0), 4);
        try (KafkaConsumer<byte[], byte[]> member = support.member(group, topic, Map.of())) {
            Support.equal(Support.range(4, 10), Support.offsets(Support.read(member, 6)), "offsets");
        }
    }

    private void resetLive() throws Exception {
        String topic = support.topic(1);
        String group = support.name();
        try (KafkaConsumer<byte[], byte[]> member = support.member(group, topic, Map.of())) {
            Support.settle(List.of(member), Support.partitions(topic, 1));
            Support.refused(() -> alter(group, new TopicPartition(topic, 0), 0), Errors.UNKNOWN_MEMBER_ID);
        }
    }

    private void createByOffsets() throws Exception {
        String topic = support.topic(1);
        String group = support.name();
        support.produce(Support.texts(topic, 0, "record", 10));
        alter(group, new TopicPartition(topic, 0), 6);
        try (KafkaConsumer<byte[], byte[]> member = support.member(group, topic, Map.of())) {
            Support.equal(Support.range(6, 10), Support.offsets(Support.read(member, 4)), "offsets");
        }
    }

    private void deleteOffsets() throws Exception {
        String topic = support.topic(1);
        String other = support.topic(1);
        String group = support.name();
        withCommit(group, topic);
        withCommit(group, other);
        Support.get(support.admin.deleteConsumerGroupOffsets(group, Set.of(new TopicPartition(topic, 0))).all());
        Support.equal(Map.of(new TopicPartition(other, 0), 10L), offsets(group), "offsets");
    }

    private void deleteOffsetsLive() throws Exception {
        String topic = support.topic(1);
        String group = support.name();
        support.produce(Support.texts(topic, 0, "record", 3));
        try (KafkaConsumer<byte[], byte[]> member = support.member(group, topic, Map.of())) {
            Support.read(member, 3);
            member.commitSync();
            Support.refused(
                () -> Support.get(support.admin.deleteConsumerGroupOffsets(group, Set.of(new TopicPartition(topic, 0))).all()),
                Errors.GROUP_SUBSCRIBED_TO_TOPIC);
        }
    }

    private void topicDeleted() throws Exception {
        String topic = support.topic(1);
        String other = support.topic(1);
        String group = support.name();
        withCommit(group, topic);
        withCommit(group, other);
        Support.get(support.admin.deleteTopics(List.of(topic)).all());
        Support.waitUntil("only the other topic's offset", () -> offsets(group).equals(Map.of(new TopicPartition(other, 0), 10L)));
    }

    private void removeMembers() throws Exception {
        String topic = support.topic(2);
        String group = support.name();
        try (KafkaConsumer<byte[], byte[]> stays = instance(group, topic, "stays", LONG_MS)) {
            KafkaConsumer<byte[], byte[]> goes = instance(group, topic, "goes", LONG_MS);
            Support.settle(List.of(stays, goes), Support.partitions(topic, 2));
            goes.close(Duration.ofSeconds(2));
            Support.get(support.admin.removeMembersFromConsumerGroup(
                group, new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("goes")))).all());
            // Within a time that is shorter than its session.
            Support.settle(List.of(stays), Support.partitions(topic, 2));
            Support.refused(() -> Support.get(support.admin.removeMembersFromConsumerGroup(
                group, new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("nobody")))).all()),
                Errors.UNKNOWN_MEMBER_ID);
        }
    }
}
