// sarama BROKERS: Sarama makes a topic, publishes idempotently with zstd, reads it in a group of two, and looks at both.
// What it found goes to stdout as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	topic      = "sarama"
	group      = "sarama-readers"
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
	Groups    []string         `json:"groups"`
	Topics    []string         `json:"topics"`
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// reader is one member; all members of a run share what they see.
type reader struct {
	lock *sync.Mutex
	seen *[]record
	own  *map[int]int
	me   int
}

func (r reader) Setup(session sarama.ConsumerGroupSession) error {
	r.lock.Lock()
	defer r.lock.Unlock()
	(*r.own)[r.me] = len(session.Claims()[topic])
	return nil
}

func (r reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		r.lock.Lock()
		*r.seen = append(*r.seen, record{message.Partition, message.Offset, string(message.Key), string(message.Value),
			string(message.Headers[0].Value)})
		r.lock.Unlock()
		session.MarkMessage(message, "")
	}
	return nil
}

func until(what string, condition func() bool) {
	for end := time.Now().Add(40 * time.Second); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			log.Fatalf("not within 40 s: %s", what)
		}
	}
}

func main() {
	brokers := []string{os.Args[1]}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.ClientID = "tests"
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Compression = sarama.CompressionZSTD
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond

	admin, err := sarama.NewClusterAdmin(brokers, config)
	check(err)
	retention := "3600000"
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 2,
		ConfigEntries: map[string]*string{"retention.ms": &retention}}, false))
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic,
		ConfigNames: []string{"retention.ms"}})
	check(err)

	producer, err := sarama.NewSyncProducer(brokers, config)
	check(err)
	messages := make([]*sarama.ProducerMessage, records)
	for i := range messages {
		messages[i] = &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(fmt.Sprintf("k%d", i%20)),
			Value:   sarama.StringEncoder(fmt.Sprintf("v%d", i)),
			Headers: []sarama.RecordHeader{{Key: []byte("number"), Value: []byte(fmt.Sprint(i))}}}
	}
	check(producer.SendMessages(messages))
	check(producer.Close())

	var lock sync.Mutex
	var seen []record
	own := map[int]int{}
	running, stop := context.WithCancel(context.Background())
	var members sync.WaitGroup
	for i := range 2 {
		member, err := sarama.NewConsumerGroup(brokers, group, config)
		check(err)
		members.Add(1)
		go func() {
			defer members.Done()
			for running.Err() == nil {
				check(member.Consume(running, []string{topic}, reader{lock: &lock, seen: &seen, own: &own, me: i}))
			}
			check(member.Close())
		}()
	}
	until("two members share the topic and have read it", func() bool {
		lock.Lock()
		defer lock.Unlock()
		return own[0] == partitions/2 && own[1] == partitions/2 && len(seen) >= records
	})
	said := found{Members: []int{own[0], own[1]}, Retention: entries[0].Value, Committed: map[string]int64{},
		Ends: map[string]int64{}}
	described, err := admin.DescribeConsumerGroups([]string{group})
	check(err)
	said.State = described[0].State
	stop()
	members.Wait()
	said.Seen = seen

	offsets, err := admin.ListConsumerGroupOffsets(group, nil)
	check(err)
	for partition, block := range offsets.Blocks[topic] {
		said.Committed[fmt.Sprint(partition)] = block.Offset
	}
	client, err := sarama.NewClient(brokers, config)
	check(err)
	for partition := range int32(partitions) {
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		check(err)
		said.Ends[fmt.Sprint(partition)] = end
	}
	check(client.Close())
	check(admin.DeleteConsumerGroup(group))
	groups, err := admin.ListConsumerGroups()
	check(err)
	for name := range groups {
		said.Groups = append(said.Groups, name)
	}
	check(admin.DeleteTopic(topic))
	topics, err := admin.ListTopics()
	check(err)
	for name := range topics {
		said.Topics = append(said.Topics, name)
	}
	check(admin.Close())
	check(json.NewEncoder(os.Stdout).Encode(said))
}
