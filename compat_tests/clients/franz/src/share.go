package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

var acknowledgements = map[string]kgo.AckStatus{
	"accept":  kgo.AckAccept,
	"release": kgo.AckRelease,
	"reject":  kgo.AckReject,
	"renew":   kgo.AckRenew,
}

// share is a member of a share group, which fetches only when it is polled. Keys of its configuration:
// bootstrap.servers, group.id, topics, max.poll.records, share.acquire.mode.
type share struct {
	inner *kgo.Client
	last  map[string]*kgo.Record

	lock  sync.Mutex
	codes map[int16]bool
}

func newShare(given config) (client, error) {
	s := &share{codes: map[int16]bool{}}
	more := []kgo.Opt{
		kgo.ShareGroup(given["group.id"]),
		kgo.ConsumeTopics(given.topics()...),
		kgo.MaxConcurrentFetches(0),
		kgo.ShareAckCallback(s.told),
	}
	if most, err := strconv.ParseInt(given["max.poll.records"], 10, 32); err == nil {
		more = append(more, kgo.ShareMaxRecords(int32(most)))
	}
	if given["share.acquire.mode"] == "record_limit" {
		more = append(more, kgo.ShareMaxRecordsStrict())
	}
	var err error
	s.inner, err = kgo.NewClient(given.options(more...)...)
	return s, err
}

// told gathers what brokers have answered to acknowledgements.
func (s *share) told(_ *kgo.Client, results kgo.ShareAckResults) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, one := range results {
		s.codes[number(one.Err)] = true
	}
}

func (s *share) carryOut(ctx context.Context, command string, given []string) ([]string, error) {
	switch command {
	case "poll":
		return s.poll(ctx, given[0])
	case "acknowledge":
		for _, word := range given[1:] {
			s.last[word].Ack(acknowledgements[given[0]])
		}
		return nil, nil
	case "commit":
		return s.commit(ctx)
	case "close":
		s.inner.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("a member of a share group cannot %s", command)
}

// poll returns topic:partition:offset:count:value of each record.
func (s *share) poll(ctx context.Context, wait string) ([]string, error) {
	patience, err := milliseconds(wait)
	if err != nil {
		return nil, err
	}
	polling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fetches := s.inner.PollFetches(polling)
	s.last = map[string]*kgo.Record{}
	var found []string
	fetches.EachRecord(func(one *kgo.Record) {
		where := place(one.Topic, one.Partition, one.Offset)
		s.last[where] = one
		found = append(found, fmt.Sprintf("%s:%d:%s", where, one.DeliveryCount(), one.Value))
	})
	if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	return found, nil
}

// commit sends the acknowledgements, and returns the codes of all answers since the last time.
func (s *share) commit(ctx context.Context) ([]string, error) {
	if err := s.inner.FlushAcks(ctx); err != nil {
		return nil, err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	var found []string
	for code := range s.codes {
		found = append(found, strconv.Itoa(int(code)))
	}
	clear(s.codes)
	return found, nil
}
