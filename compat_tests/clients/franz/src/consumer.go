package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// groupOptions are those of a member of a group: classic, or with protocol=consumer as KIP-848 has it.
func groupOptions(given config) []kgo.Opt {
	options := []kgo.Opt{
		kgo.ConsumerGroup(given["group"]),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if given["regex"] != "" {
		options = append(options, kgo.ConsumeTopics(given["regex"]), kgo.ConsumeRegex())
	} else {
		options = append(options, kgo.ConsumeTopics(given.topics()...))
	}
	if given["protocol"] == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.SessionTimeout(30*time.Second), kgo.HeartbeatInterval(200*time.Millisecond))
	}
	switch given["assignor"] {
	case "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative-sticky":
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	default:
		options = append(options, kgo.Balancers(kgo.StickyBalancer()))
	}
	if given["instance"] != "" {
		options = append(options, kgo.InstanceID(given["instance"]))
	}
	if given["isolation"] == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return options
}

// consumer polls by itself, in a goroutine, from the beginning where nothing is committed. Keys of its configuration:
// bootstrap.servers, group, topics, regex, protocol, assignor, instance, isolation.
type consumer struct {
	inner   *kgo.Client
	ctx     context.Context
	stop    context.CancelFunc
	stopped chan struct{}

	lock     sync.Mutex
	held     map[string][]int32
	records  []string
	problems []error
}

func newConsumer(given config) (client, error) {
	c := &consumer{held: map[string][]int32{}, stopped: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	more := append(groupOptions(given),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, gained map[string][]int32) {
			c.change(gained, func(held []int32, one int32) []int32 { return append(held, one) })
		}),
		kgo.OnPartitionsRevoked(c.drop),
		kgo.OnPartitionsLost(c.drop),
	)
	var err error
	c.inner, err = kgo.NewClient(given.options(more...)...)
	if err == nil {
		go c.poll()
	}
	return c, err
}

func (c *consumer) drop(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	c.change(lost, func(held []int32, one int32) []int32 {
		return slices.DeleteFunc(held, func(other int32) bool { return other == one })
	})
}

func (c *consumer) change(by map[string][]int32, what func([]int32, int32) []int32) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for topic, partitions := range by {
		for _, one := range partitions {
			c.held[topic] = what(c.held[topic], one)
		}
	}
}

func (c *consumer) poll() {
	defer close(c.stopped)
	for c.ctx.Err() == nil {
		fetches := c.inner.PollFetches(c.ctx)
		c.lock.Lock()
		fetches.EachRecord(func(one *kgo.Record) {
			c.records = append(c.records, place(one.Topic, one.Partition, one.Offset)+":"+string(one.Value))
		})
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.Canceled) {
				c.problems = append(c.problems, err)
			}
		})
		c.lock.Unlock()
	}
}

func (c *consumer) carryOut(ctx context.Context, command string, given []string) ([]string, error) {
	switch command {
	case "assignment":
		return c.assignment(), nil
	case "records":
		return c.all(), nil
	case "failure":
		c.lock.Lock()
		defer c.lock.Unlock()
		return nil, errors.Join(c.problems...)
	case "commit":
		if len(given) == 0 {
			return nil, c.inner.CommitUncommittedOffsets(ctx)
		}
		var records []*kgo.Record
		for _, word := range given {
			topic, partition, offset, err := placed(word)
			if err != nil {
				return nil, err
			}
			// What is committed is the offset behind a record.
			records = append(records, &kgo.Record{Topic: topic, Partition: partition, Offset: offset - 1, LeaderEpoch: -1})
		}
		return nil, c.inner.CommitRecords(ctx, records...)
	case "member":
		id, epoch := c.inner.GroupMetadata()
		return []string{id, fmt.Sprint(epoch)}, nil
	case "close":
		c.stop()
		<-c.stopped
		c.inner.Close()
		return c.all(), nil
	}
	return nil, fmt.Errorf("a consumer cannot %s", command)
}

// assignment is topic:partition of each that it has.
func (c *consumer) assignment() []string {
	c.lock.Lock()
	defer c.lock.Unlock()
	var found []string
	for topic, partitions := range c.held {
		for _, one := range partitions {
			found = append(found, fmt.Sprintf("%s:%d", topic, one))
		}
	}
	return found
}

// all is topic:partition:offset:value of each record that it has got.
func (c *consumer) all() []string {
	c.lock.Lock()
	defer c.lock.Unlock()
	return slices.Clone(c.records)
}
