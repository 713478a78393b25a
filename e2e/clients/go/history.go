package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const outstandingMax = 2000

// historyFile is one process's history (../../history/README.md).
type historyFile struct {
	mu    sync.Mutex
	w     *bufio.Writer
	f     *os.File
	begun bool
}

func openHistory(path string, number int64, name string) (*historyFile, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	h := &historyFile{w: bufio.NewWriterSize(f, 1<<16), f: f}
	h.line("P %d %s\n", number, name)
	return h, nil
}

func (h *historyFile) line(format string, a ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(h.w, format, a...)
	if !h.begun && (strings.HasPrefix(format, "a ") || strings.HasPrefix(format, "p ")) {
		h.begun = h.w.Flush() == nil // whoever waits for this client to work sees it
	}
}

func (h *historyFile) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.w.Flush(); err != nil {
		return err
	}
	return h.f.Close()
}

func now() int64 { return time.Now().UnixMicro() }

// untilStdinEnds is done when whoever started us lets go.
func untilStdinEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

type place struct {
	topic     string
	partition int32
}

func parseTopics(spec string) ([]place, []string, error) {
	var places []place
	var topics []string
	for _, part := range strings.Split(spec, ",") {
		name, count, _ := strings.Cut(part, ":")
		n, err := strconv.Atoi(count)
		if err != nil {
			return nil, nil, err
		}
		topics = append(topics, name)
		for i := 0; i < n; i++ {
			places = append(places, place{name, int32(i)})
		}
	}
	return places, topics, nil
}

// leading is the number a value begins with.
func leading(value []byte) string {
	s, _, _ := strings.Cut(string(value), " ")
	return s
}

// patience is how long the client waits between two looks at the cluster: by itself, with KAAS_CLIENT_DEFAULTS, five seconds.
func patience() kgo.Opt {
	if os.Getenv("KAAS_CLIENT_DEFAULTS") != "" {
		return kgo.MetadataMinAge(5 * time.Second)
	}
	return kgo.MetadataMinAge(250 * time.Millisecond)
}

func historyProduce(path string, number int64, bootstrap, spec string, rate float64, mode string) error {
	if mode != "idempotent" {
		return fmt.Errorf("mode %s is not one of this client", mode)
	}
	places, _, err := parseTopics(spec)
	if err != nil {
		return err
	}
	out, err := openHistory(path, number, "franz-go idempotent")
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(2*time.Millisecond), kgo.ProducerBatchMaxBytes(100000), patience())
	if err != nil {
		return err
	}
	defer cl.Close()
	done := untilStdinEnds()
	var acked, unknown atomic.Int64
	begun, i := time.Now(), int64(0)
	for done.Err() == nil {
		due := min(int64(time.Since(begun).Seconds()*rate), acked.Load()+unknown.Load()+outstandingMax)
		for ; i < due; i++ {
			p, value := places[i%int64(len(places))], number<<40+i
			out.line("s %d %s %d %d %d\n", now(), p.topic, p.partition, value, i%53)
			r := &kgo.Record{Topic: p.topic, Partition: p.partition, Key: []byte(strconv.FormatInt(i%53, 10)),
				Value: []byte(strconv.FormatInt(value, 10) + " " + strings.Repeat("x", int(i*7919%300)))}
			cl.Produce(context.Background(), r, func(r *kgo.Record, err error) {
				if err != nil {
					unknown.Add(1)
					out.line("u %d %s\n", now(), leading(r.Value))
					fmt.Fprintln(os.Stderr, "send failed:", err)
				} else {
					acked.Add(1)
					out.line("a %d %s %d %d\n", now(), leading(r.Value), r.Partition, r.Offset)
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Second)
	defer cancel()
	if err := cl.Flush(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "flush:", err)
	}
	if err := out.close(); err != nil {
		return err
	}
	fmt.Printf("{\"sent\": %d, \"acked\": %d, \"unknown\": %d}\n", i, acked.Load(), unknown.Load())
	return nil
}

func historyConsume(path string, number int64, bootstrap, spec string) error {
	places, topics, err := parseTopics(spec)
	if err != nil {
		return err
	}
	out, err := openHistory(path, number, "franz-go-direct")
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), patience())
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, p := range places {
		out.line("r %d %s %d 0\n", now(), p.topic, p.partition)
	}
	done := untilStdinEnds()
	var read int64
	for done.Err() == nil {
		read += int64(len(poll(done, cl, out)))
	}
	if err := out.close(); err != nil {
		return err
	}
	fmt.Printf("{\"read\": %d}\n", read)
	return nil
}

// poll writes down what one poll gives, and returns it.
func poll(done context.Context, cl *kgo.Client, out *historyFile) []*kgo.Record {
	t0 := now()
	fetches := cl.PollFetches(done)
	t1 := now()
	fetches.EachError(func(t string, p int32, err error) {
		if done.Err() == nil {
			fmt.Fprintln(os.Stderr, "fetch error:", t, p, err)
		}
	})
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) == 0 {
			return
		}
		var b strings.Builder
		for _, r := range p.Records {
			fmt.Fprintf(&b, " %d:%s", r.Offset, leading(r.Value))
		}
		out.line("p %d %d %s %d%s\n", t0, t1, p.Topic, p.Partition, b.String())
	})
	return fetches.Records()
}

// commit writes down what was asked and what was told, and says on stderr what a program would be told of an error.
func commit(cl *kgo.Client, out *historyFile, group string, at map[string]map[int32]kgo.EpochOffset) {
	failed := map[place]bool{}
	t0 := now()
	each(at, func(p place, o int64) { out.line("b %d %s %s %d %d\n", t0, group, p.topic, p.partition, o) })
	fail := func(p place, err error) {
		failed[p] = true
		fmt.Fprintln(os.Stderr, "commit:", p.topic, p.partition, err)
	}
	cl.CommitOffsetsSync(context.Background(), at, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, r *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			each(at, func(p place, _ int64) { fail(p, err) })
			return
		}
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					fail(place{t.Topic, p.Partition}, err)
				}
			}
		}
	})
	t1 := now()
	each(at, func(p place, o int64) {
		how := "ok"
		if failed[p] {
			how = "unknown"
		}
		out.line("c %d %d %s %s %d %d %s\n", t0, t1, group, p.topic, p.partition, o, how)
	})
}

func each(at map[string]map[int32]kgo.EpochOffset, fn func(place, int64)) {
	for topic, partitions := range at {
		for partition, o := range partitions {
			fn(place{topic, partition}, o.Offset)
		}
	}
}

func historyGroup(path string, number int64, bootstrap, spec, group string) error {
	_, topics, err := parseTopics(spec)
	if err != nil {
		return err
	}
	out, err := openHistory(path, number, "franz-go-group")
	if err != nil {
		return err
	}
	assigned := func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
		for topic, partitions := range m {
			for _, partition := range partitions {
				out.line("r %d %s %d -1\n", now(), topic, partition)
			}
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumeTopics(topics...), kgo.ConsumerGroup(group),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.OnPartitionsAssigned(assigned),
		patience())
	if err != nil {
		return err
	}
	defer cl.Close()
	done := untilStdinEnds()
	var read, commits int64
	for done.Err() == nil {
		records := poll(done, cl, out)
		if len(records) == 0 {
			continue
		}
		at := map[string]map[int32]kgo.EpochOffset{}
		for _, r := range records {
			if at[r.Topic] == nil {
				at[r.Topic] = map[int32]kgo.EpochOffset{}
			}
			at[r.Topic][r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
		}
		commit(cl, out, group, at)
		read += int64(len(records))
		commits++
	}
	if err := out.close(); err != nil {
		return err
	}
	fmt.Printf("{\"read\": %d, \"commits\": %d}\n", read, commits)
	return nil
}

// history runs "history produce|consume|group FILE NUMBER BOOTSTRAP TOPICS [RATE MODE | GROUP]".
func history(a []string) error {
	if len(a) < 5 {
		return fmt.Errorf("usage: history produce|consume|group FILE NUMBER BOOTSTRAP TOPICS [RATE MODE | GROUP]")
	}
	number, err := strconv.ParseInt(a[2], 10, 64)
	if err != nil {
		return err
	}
	switch {
	case a[0] == "produce" && len(a) == 7:
		rate, err := strconv.ParseFloat(a[5], 64)
		if err != nil {
			return err
		}
		return historyProduce(a[1], number, a[3], a[4], rate, a[6])
	case a[0] == "consume":
		return historyConsume(a[1], number, a[3], a[4])
	case a[0] == "group" && len(a) == 6:
		return historyGroup(a[1], number, a[3], a[4], a[5])
	}
	return fmt.Errorf("no such verb: %s", a[0])
}
