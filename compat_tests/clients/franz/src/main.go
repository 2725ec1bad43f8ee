// Clients of franz-go that do as they are asked.
//
// A line of input is "serial TAB command TAB client TAB argument...", its answer "serial TAB OK TAB result..." or
// "serial TAB ERR TAB number TAB text", in any order: the number is Kafka's, -1 if it has none. The command "open"
// makes a client of the kind that its first argument names; its other arguments are key=value. Each client does one
// thing after the other.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const answerTime = 90 * time.Second

// client is one that obeys; carryOut is called by one goroutine only.
type client interface {
	carryOut(ctx context.Context, command string, given []string) ([]string, error)
}

type order struct {
	serial, command string
	given           []string
}

var kinds = map[string]func(config) (client, error){
	"producer": newProducer,
	"consumer": newConsumer,
	"copier":   newCopier,
	"share":    newShare,
}

func main() {
	clients := map[string]chan order{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		one, name := order{words[0], words[1], words[3:]}, words[2]
		if one.command == "open" {
			clients[name] = make(chan order, 16)
			go serve(clients[name])
		}
		clients[name] <- one
	}
}

// serve carries out the orders of one client, the first of which makes it.
func serve(orders <-chan order) {
	var made client
	for one := range orders {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		var result []string
		var err error
		if one.command == "open" {
			made, err = kinds[one.given[0]](parsed(one.given[1:]))
		} else {
			result, err = made.carryOut(ctx, one.command, one.given)
		}
		cancel()
		answer(one.serial, result, err)
	}
}

var output sync.Mutex

func answer(serial string, result []string, err error) {
	line := serial + "\tOK\t" + strings.Join(result, "\t")
	if err != nil {
		line = fmt.Sprintf("%s\tERR\t%d\t%s", serial, number(err), strings.Join(strings.Fields(err.Error()), " "))
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(line)
}

// number is Kafka's of an error: 0 of none, -1 if it has none.
func number(err error) int16 {
	var known *kerr.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &known):
		return known.Code
	}
	return -1
}

type config map[string]string

func parsed(words []string) config {
	found := config{}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		found[key] = value
	}
	return found
}

func (c config) topics() []string {
	return strings.Split(c["topics"], ",")
}

// options are those that all clients have in common: what they do not know they learn in fractions of a second.
func (c config) options(more ...kgo.Opt) []kgo.Opt {
	common := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(c["bootstrap.servers"], ",")...),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.MetadataMaxAge(300 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.RequestTimeoutOverhead(60 * time.Second),
	}
	if id := c["client.id"]; id != "" {
		common = append(common, kgo.ClientID(id))
	}
	return append(common, more...)
}

// place is topic:partition:offset.
func place(topic string, partition int32, offset int64) string {
	return fmt.Sprintf("%s:%d:%d", topic, partition, offset)
}

// placed undoes what place does.
func placed(word string) (topic string, partition int32, offset int64, err error) {
	words := strings.Split(word, ":")
	if len(words) != 3 {
		return "", 0, 0, fmt.Errorf("%q is no topic:partition:offset", word)
	}
	index, err := strconv.ParseInt(words[1], 10, 32)
	if err != nil {
		return "", 0, 0, err
	}
	offset, err = strconv.ParseInt(words[2], 10, 64)
	return words[0], int32(index), offset, err
}

// milliseconds is a span of time as it stands in an order.
func milliseconds(word string) (time.Duration, error) {
	number, err := strconv.Atoi(word)
	return time.Duration(number) * time.Millisecond, err
}
