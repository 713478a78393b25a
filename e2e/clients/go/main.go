// Command client is franz-go behind the command line of ../README.md.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func value(i int64) []byte {
	n := 1 + (i*7919)%1024
	if i%1000 == 0 {
		n = 65536
	}
	v := make([]byte, n)
	for j := range v {
		v[j] = byte('a' + (i*7+int64(j)*13)%26)
	}
	return v
}

func produce(bootstrap, topic string, first, count int64) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.DefaultProduceTopic(topic),
		kgo.AllowAutoTopicCreation(), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	var sent, failed atomic.Int64
	for i := first; i < first+count; i++ {
		r := &kgo.Record{Key: []byte("k" + strconv.FormatInt(i, 10)), Value: value(i)}
		cl.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Add(1)
				fmt.Fprintln(os.Stderr, "send failed:", err)
			} else {
				sent.Add(1)
			}
		})
	}
	if err := cl.Flush(context.Background()); err != nil {
		return err
	}
	fmt.Printf("{\"sent\": %d, \"failed\": %d}\n", sent.Load(), failed.Load())
	return nil
}

func consume(bootstrap, topic, group string, count int64) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		return err
	}
	defer cl.Close()
	seen := map[string]bool{}
	var records int64
	var digest uint64
	for int64(len(seen)) < count {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		fetches := cl.PollFetches(ctx)
		cancel()
		if ctx.Err() == context.DeadlineExceeded {
			break
		}
		fetches.EachError(func(t string, p int32, err error) {
			fmt.Fprintln(os.Stderr, "fetch error:", t, p, err)
		})
		fetches.EachRecord(func(r *kgo.Record) {
			records++
			key := string(r.Key)
			if seen[key] {
				return
			}
			seen[key] = true
			h := sha256.New()
			h.Write(r.Key)
			h.Write([]byte{0})
			h.Write(r.Value)
			digest += binary.BigEndian.Uint64(h.Sum(nil))
		})
		if err := cl.CommitUncommittedOffsets(context.Background()); err != nil {
			return err
		}
	}
	fmt.Printf("{\"records\": %d, \"unique\": %d, \"digest\": \"%016x\"}\n", records, len(seen), digest)
	return nil
}

func main() {
	usage := "usage: produce BOOTSTRAP TOPIC FIRST COUNT | consume BOOTSTRAP TOPIC GROUP COUNT"
	a := os.Args
	if len(a) > 1 && a[1] == "history" {
		if err := history(a[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(a) != 6 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	count, err := strconv.ParseInt(a[5], 10, 64)
	if err == nil {
		switch a[1] {
		case "produce":
			var first int64
			if first, err = strconv.ParseInt(a[4], 10, 64); err == nil {
				err = produce(a[2], a[3], first, count)
			}
		case "consume":
			err = consume(a[2], a[3], a[4], count)
		default:
			err = fmt.Errorf("%s", usage)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
