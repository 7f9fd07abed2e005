// franz BROKERS: franz-go makes a topic, publishes idempotently with snappy, reads it in a cooperative group of two, and
// looks at both. What it found goes to stdout as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	topic      = "franz"
	group      = "franz-readers"
	records    = 300
	partitions = 4
)

type record struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Key       string `json:"key"`
	Value     string `json:"value"`
	Header    string `json:"header"`
}

type found struct {
	Seen      []record         `json:"seen"`
	Members   []int            `json:"members"` // partitions of each, once all of them share the topic
	State     string           `json:"state"`
	Committed map[string]int64 `json:"committed"`
	Ends      map[string]int64 `json:"ends"`
	Retention string           `json:"retention"`
	Lag       int64            `json:"lag"`
	Start     int64            `json:"start"` // of partition 0, after one record of it was deleted
	Groups    []string         `json:"groups"`
	Topics    []string         `json:"topics"`
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	brokers := kgo.SeedBrokers(os.Args[1])
	client, err := kgo.NewClient(brokers, kgo.ClientID("tests"), kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	check(err)
	admin := kadm.NewClient(client)
	retention := "3600000"
	created, err := admin.CreateTopic(ctx, partitions, 2, map[string]*string{"retention.ms": &retention}, topic)
	check(err)
	check(created.Err)
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	check(err)

	var batch []*kgo.Record
	for i := range records {
		batch = append(batch, &kgo.Record{Key: []byte(fmt.Sprintf("k%d", i%20)), Value: []byte(fmt.Sprintf("v%d", i)),
			Headers: []kgo.RecordHeader{{Key: "number", Value: []byte(fmt.Sprint(i))}}})
	}
	check(client.ProduceSync(ctx, batch...).FirstErr())

	var lock sync.Mutex
	said := found{Members: []int{0, 0}, Committed: map[string]int64{}, Ends: map[string]int64{}}
	running, stop := context.WithCancel(ctx)
	var members sync.WaitGroup
	for i := range said.Members {
		count := func(by int) func(context.Context, *kgo.Client, map[string][]int32) {
			return func(ctx context.Context, member *kgo.Client, which map[string][]int32) {
				if by < 0 {
					if err := member.CommitMarkedOffsets(ctx); err != nil {
						log.Print(err)
					}
				}
				lock.Lock()
				defer lock.Unlock()
				said.Members[i] += by * len(which[topic])
			}
		}
		member, err := kgo.NewClient(brokers, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Balancers(kgo.CooperativeStickyBalancer()),
			kgo.HeartbeatInterval(300*time.Millisecond), kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(),
			kgo.OnPartitionsAssigned(count(1)), kgo.OnPartitionsRevoked(count(-1)), kgo.OnPartitionsLost(count(-1)))
		check(err)
		members.Add(1)
		go func() {
			defer members.Done()
			for running.Err() == nil {
				fetches := member.PollFetches(running)
				lock.Lock()
				fetches.EachRecord(func(r *kgo.Record) {
					said.Seen = append(said.Seen,
						record{r.Partition, r.Offset, string(r.Key), string(r.Value), string(r.Headers[0].Value)})
					member.MarkCommitRecords(r)
				})
				lock.Unlock()
				member.AllowRebalance()
			}
			member.CloseAllowingRebalance()
		}()
	}
	for {
		lock.Lock()
		shared := said.Members[0] == partitions/2 && said.Members[1] == partitions/2 && len(said.Seen) >= records
		lock.Unlock()
		if shared {
			break
		}
		check(ctx.Err())
		time.Sleep(50 * time.Millisecond)
	}
	owned := append([]int(nil), said.Members...)
	described, err := admin.DescribeGroups(ctx, group)
	check(err)
	said.State = described[group].State
	stop()
	members.Wait()
	said.Members = owned

	lags, err := admin.Lag(ctx, group)
	check(err)
	said.Lag = lags[group].Lag.Total()
	offsets, err := admin.FetchOffsets(ctx, group)
	check(err)
	offsets.Each(func(o kadm.OffsetResponse) { said.Committed[fmt.Sprint(o.Partition)] = o.At })
	ends, err := admin.ListEndOffsets(ctx, topic)
	check(err)
	ends.Each(func(o kadm.ListedOffset) { said.Ends[fmt.Sprint(o.Partition)] = o.Offset })
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" {
			said.Retention = config.MaybeValue()
		}
	}
	var one kadm.Offsets
	one.AddOffset(topic, 0, 1, -1)
	_, err = admin.DeleteRecords(ctx, one)
	check(err)
	starts, err := admin.ListStartOffsets(ctx, topic)
	check(err)
	start, _ := starts.Lookup(topic, 0)
	said.Start = start.Offset
	deleted, err := admin.DeleteGroup(ctx, group)
	check(err)
	check(deleted.Err)
	groups, err := admin.ListGroups(ctx)
	check(err)
	said.Groups = groups.Groups()
	gone, err := admin.DeleteTopics(ctx, topic)
	check(err)
	check(gone.Error())
	topics, err := admin.ListTopics(ctx)
	check(err)
	said.Topics = topics.Names()
	client.Close()
	check(json.NewEncoder(os.Stdout).Encode(said))
}
