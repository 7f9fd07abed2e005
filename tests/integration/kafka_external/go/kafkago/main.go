// kafkago BROKERS: kafka-go makes a topic, publishes with gzip, reads it in a group, leaves, goes on, and looks at both.
// What it found goes to stdout as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	topic      = "kafkago"
	group      = "kafkago-readers"
	records    = 300
	partitions = 4
)

type record struct {
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
	Key       string `json:"key"`
	Value     string `json:"value"`
	Header    string `json:"header"`
}

type found struct {
	Seen      []record         `json:"seen"`
	Committed map[string]int64 `json:"committed"`
	Ends      map[string]int64 `json:"ends"`
	State     string           `json:"state"`
	Groups    []string         `json:"groups"`
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// read takes so many records as the only member of the group, and leaves it.
func read(ctx context.Context, broker string, count int) (seen []record) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, GroupID: group, Topic: topic,
		StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond, HeartbeatInterval: 300 * time.Millisecond})
	for range count {
		message, err := reader.FetchMessage(ctx)
		check(err)
		check(reader.CommitMessages(ctx, message))
		seen = append(seen, record{message.Partition, message.Offset, string(message.Key), string(message.Value),
			string(message.Headers[0].Value)})
	}
	check(reader.Close())
	return seen
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client := &kafka.Client{Addr: kafka.TCP(os.Args[1]), Timeout: 20 * time.Second}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 2}}})
	check(err)
	check(created.Errors[topic])

	writer := &kafka.Writer{Addr: kafka.TCP(os.Args[1]), Topic: topic, Balancer: kafka.Murmur2Balancer{Consistent: true},
		RequiredAcks: kafka.RequireAll, Compression: kafka.Gzip, BatchTimeout: 10 * time.Millisecond}
	messages := make([]kafka.Message, records)
	for i := range messages {
		messages[i] = kafka.Message{Key: []byte(fmt.Sprintf("k%d", i%20)), Value: []byte(fmt.Sprintf("v%d", i)),
			Headers: []kafka.Header{{Key: "number", Value: []byte(fmt.Sprint(i))}}}
	}
	check(writer.WriteMessages(ctx, messages...))
	check(writer.Close())

	said := found{Committed: map[string]int64{}, Ends: map[string]int64{}}
	said.Seen = append(read(ctx, os.Args[1], 100), read(ctx, os.Args[1], records-100)...)
	var all []int
	var ends []kafka.OffsetRequest
	for partition := range partitions {
		all = append(all, partition)
		ends = append(ends, kafka.LastOffsetOf(partition))
	}
	offsets, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: all}})
	check(err)
	for _, partition := range offsets.Topics[topic] {
		said.Committed[fmt.Sprint(partition.Partition)] = partition.CommittedOffset
	}
	listed, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: ends}})
	check(err)
	for _, partition := range listed.Topics[topic] {
		said.Ends[fmt.Sprint(partition.Partition)] = partition.LastOffset
	}
	described, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	check(err)
	said.State = described.Groups[0].GroupState
	deleted, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	check(err)
	check(deleted.Errors[group])
	groups, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	check(err)
	for _, one := range groups.Groups {
		said.Groups = append(said.Groups, one.GroupID)
	}
	gone, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	check(err)
	check(gone.Errors[topic])
	check(json.NewEncoder(os.Stdout).Encode(said))
}
