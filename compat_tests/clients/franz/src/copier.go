package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// copier copies what it reads as a member of a group in transactions, which hold the group's offsets. Keys of its
// configuration: those of a consumer, id, and to, the other topic.
type copier struct {
	inner *kgo.GroupTransactSession
	to    string
}

func newCopier(given config) (client, error) {
	given["isolation"] = "read_committed"
	more := append(groupOptions(given),
		kgo.TransactionalID(given["id"]),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	inner, err := kgo.NewGroupTransactSession(given.options(more...)...)
	return &copier{inner, given["to"]}, err
}

func (c *copier) carryOut(ctx context.Context, command string, given []string) ([]string, error) {
	switch command {
	case "copy":
		return c.copy(ctx, given[0] == "commit", given[1])
	case "close":
		c.inner.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("a copier cannot %s", command)
}

// copy makes one transaction out of what one poll brings within so many milliseconds. It returns how many records have
// been copied: none if it was aborted, because of a rebalance, too.
func (c *copier) copy(ctx context.Context, commit bool, wait string) ([]string, error) {
	patience, err := milliseconds(wait)
	if err != nil {
		return nil, err
	}
	polling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fetches := c.inner.PollFetches(polling)
	if fetches.NumRecords() == 0 {
		return []string{"0"}, nil
	}
	if err := c.inner.Begin(); err != nil {
		return nil, err
	}
	fetches.EachRecord(func(one *kgo.Record) {
		c.inner.Produce(ctx, &kgo.Record{Topic: c.to, Partition: one.Partition, Value: one.Value}, nil)
	})
	committed, err := c.inner.End(ctx, kgo.TransactionEndTry(commit))
	if err != nil || !committed {
		return []string{"0"}, err
	}
	return []string{strconv.Itoa(fetches.NumRecords())}, nil
}
