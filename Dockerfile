# A broker as a container image.
#
#     docker build -t barnabas .
#     docker run -p 9092:9092 -v barnabas:/data barnabas
#
# Settings are KAFKA_* variables (KAFKA_ZOOKEEPER_CONNECT is zookeeper.connect) or arguments (--set key=value);
# KAFKA_CREATE_TOPICS=orders:3:1,clicks:1:1 makes topics. examples/compose.yaml: reached from the host and from
# containers. KAFKA_CONSOLE_LISTENER=http://0.0.0.0:8080 brings a console along (docs/console.md: it wants a password
# then). One of a cluster:
#
#     docker run --network kafka --name broker-1 --stop-timeout 120 -v broker-1:/data \
#         -e KAFKA_BROKER_ID=1 -e KAFKA_ZOOKEEPER_CONNECT=zookeeper:2181 \
#         -e KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://broker-1:9092 barnabas

# barnabas-native: one wheel for every CPython from 3.11 on. An older Debian's glibc will do for a newer one.
FROM rust:1-slim-bookworm AS native
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && python3 -m venv /maturin
RUN /maturin/bin/pip install --no-cache-dir "maturin>=1.8,<2"
COPY kproto/native /source
RUN /maturin/bin/maturin build --release --locked --manifest-path /source/Cargo.toml --out /wheels

FROM python:3.13-slim AS build
WORKDIR /source
COPY . .
COPY --from=native /wheels /wheels
# The environment has no pip of its own: nothing is installed into a running broker.
RUN python -m venv --without-pip /opt/barnabas \
    && python -m pip --python /opt/barnabas/bin/python install --no-cache-dir --constraint .ci/constraints.txt \
        ".[fast,lz4,regex,console]" /wheels/*.whl

FROM python:3.13-slim
RUN python -m pip uninstall --yes --quiet --root-user-action=ignore pip
COPY --from=build /opt/barnabas /opt/barnabas
RUN useradd --system --uid 1000 --home-dir /data barnabas && install -d -o barnabas /data
USER barnabas
VOLUME /data
EXPOSE 9092
# Without KAFKA_LISTENERS a broker listens on loopback only, where nobody outside of the container reaches it.
ENV PATH=/opt/barnabas/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    KAFKA_LOG_DIRS=/data
# Asks the first of KAFKA_LISTENERS.
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 CMD ["barnabas", "health"]
# TERM is a controlled stop: leaders move to other brokers first. Give it time (--stop-timeout).
STOPSIGNAL SIGTERM
ENTRYPOINT ["barnabas", "serve"]
