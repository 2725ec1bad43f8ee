"""The command-line tools by the names of their scripts, bound to a broker."""

from __future__ import annotations

import subprocess

from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.harness.brokers import KAFKA_JARS
from compat_tests.harness.jars import SHORT_LIVED, classpath, java
from compat_tests.harness.processes import Background, Failed, run

RUN_TIMEOUT_S = 300

MAIN_CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
    "kafka-share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    # Only in the tools of 3.9.1; takes --broker-list instead of --bootstrap-server.
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
}
ALONE = ("kafka-verifiable-producer",)
"""Tools that leave work to a shutdown hook of the JVM itself: they have a process of their own."""
# A tool lives for a second: no time for the optimising compiler or a parallel collector.
JAVA_OPTIONS = (
    "-Xmx256m",
    *SHORT_LIVED,
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class Tools:
    """Runs the tools against one broker. Those that come to an end by themselves share a JVM."""

    def __init__(self, bootstrap: str, jvms: WarmJvms, jars: str = KAFKA_JARS) -> None:
        self.bootstrap = bootstrap
        self.jvms = jvms
        self.jars = jars

    def __call__(self, script: str, *arguments: str, text: str = "", expect: int | None = 0) -> str:
        """Run a tool to its end; return what it wrote (errors too when it is expected to fail). Raises Failed."""
        main_class, *words = self._words(script, arguments)
        if script in ALONE:
            done = self.process(script, *arguments, text=text)
        else:
            done = self.jvms.run(self.jars, main_class, words, text=text, timeout=RUN_TIMEOUT_S)
        if expect is not None and done.returncode != expect:
            said = (done.stdout[-3000:] + done.stderr[-3000:]).decode(errors="replace")
            raise Failed(f"{script} {' '.join(words)}: exit status {done.returncode}\n{said}")
        return (done.stdout if expect == 0 else done.stdout + done.stderr).decode()

    def process(self, script: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[bytes]:
        """Run a tool to its end as its script does: in a process of its own."""
        return run(self._command(script, arguments), text=text, timeout=RUN_TIMEOUT_S, expect=None)

    def background(self, script: str, *arguments: str) -> Background:
        """Start a tool that runs until it is stopped."""
        return Background(self._command(script, arguments))

    def _command(self, script: str, arguments: tuple[str, ...]) -> list[str]:
        return [*java(), *JAVA_OPTIONS, "-cp", classpath(self.jars), *self._words(script, arguments)]

    def _words(self, script: str, arguments: tuple[str, ...]) -> list[str]:
        option = "--broker-list" if script == "kafka-replica-verification" else "--bootstrap-server"
        return [MAIN_CLASSES[script], option, self.bootstrap, *arguments]

    def produce(self, topic: str, lines: list[str], *arguments: str) -> None:
        """Send lines with the console producer."""
        self("kafka-console-producer", "--topic", topic, *arguments, text="".join(f"{line}\n" for line in lines))

    def consume(self, topic: str, count: int, *arguments: str) -> list[str]:
        """Read so many records with the console consumer."""
        limits = ("--max-messages", str(count), "--timeout-ms", "120000")
        return self("kafka-console-consumer", "--topic", topic, *limits, *arguments).splitlines()
