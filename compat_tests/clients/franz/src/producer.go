package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"":       kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// producer: idempotent, and with transactions if it has an "id". Keys of its configuration: bootstrap.servers, codec, id.
type producer struct {
	inner *kgo.Client
}

func newProducer(given config) (client, error) {
	more := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[given["codec"]]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.UnknownTopicRetries(20),
	}
	if given["id"] != "" {
		more = append(more, kgo.TransactionalID(given["id"]))
	}
	inner, err := kgo.NewClient(given.options(more...)...)
	return &producer{inner}, err
}

func (p *producer) carryOut(ctx context.Context, command string, given []string) ([]string, error) {
	switch command {
	case "produce":
		return p.produce(ctx, given[0], given[1], given[2:])
	case "begin":
		return nil, p.inner.BeginTransaction()
	case "end":
		return nil, p.inner.EndTransaction(ctx, kgo.TransactionEndTry(given[0] == "commit"))
	case "close":
		p.inner.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("a producer cannot %s", command)
}

// produce returns the offsets of the values.
func (p *producer) produce(ctx context.Context, topic, partition string, values []string) ([]string, error) {
	index, err := strconv.ParseInt(partition, 10, 32)
	if err != nil {
		return nil, err
	}
	var records []*kgo.Record
	for _, value := range values {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(index), Value: []byte(value)})
	}
	produced := p.inner.ProduceSync(ctx, records...)
	var offsets []string
	for _, record := range records {
		offsets = append(offsets, strconv.FormatInt(record.Offset, 10))
	}
	return offsets, produced.FirstErr()
}
