# A broker as a container image.
#
#     docker build -t barnabas .
#     docker run -p 9092:9092 -v barnabas:/data barnabas
#
# Settings are KAFKA_* variables (KAFKA_ZOOKEEPER_CONNECT is zookeeper.connect) or arguments (--set key=value). One of a
# cluster:
#
#     docker run --network kafka --name broker-1 --stop-timeout 120 -v broker-1:/data \
#         -e KAFKA_BROKER_ID=1 -e KAFKA_ZOOKEEPER_CONNECT=zookeeper:2181 \
#         -e KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://broker-1:9092 barnabas

FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/barnabas && /opt/barnabas/bin/pip install --no-cache-dir .

FROM python:3.12-slim
COPY --from=build /opt/barnabas /opt/barnabas
RUN useradd --system --uid 1000 --home-dir /data barnabas && install -d -o barnabas /data
USER barnabas
VOLUME /data
EXPOSE 9092
ENV PYTHONUNBUFFERED=1 \
    KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    KAFKA_LOG_DIRS=/data
# TERM is a controlled stop: leaders move to other brokers first. Give it time (--stop-timeout).
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/barnabas/bin/barnabas", "serve"]
