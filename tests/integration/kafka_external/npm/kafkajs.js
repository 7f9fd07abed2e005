// node kafkajs.js BROKERS: kafkajs makes a topic, publishes with gzip, reads it in a group of two, and looks at both.
// What it found goes to stdout as one line of JSON.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const TOPIC = "kafkajs";
const GROUP = "kafkajs-readers";
const RECORDS = 300;
const PARTITIONS = 4;

const kafka = new Kafka({ clientId: "tests", brokers: process.argv[2].split(","), logLevel: logLevel.NOTHING });
const admin = kafka.admin();

async function publish(from, to) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const messages = [];
  for (let i = from; i < to; i++) {
    messages.push({ key: `k${i % 20}`, value: i % 50 === 49 ? null : `v${i}`, headers: { number: `${i}` } });
  }
  await producer.send({ topic: TOPIC, compression: CompressionTypes.GZIP, acks: -1, messages });
  await producer.disconnect();
}

// A group of so many members that share all partitions.
async function join(members) {
  const seen = [];
  const owned = Array(members).fill([]);
  const consumers = [];
  let wanted = Infinity;
  let joined, done;
  const shared = new Promise((resolve) => (joined = resolve));
  const all = new Promise((resolve) => (done = resolve));
  const look = () => seen.length >= wanted && done();
  for (let i = 0; i < members; i++) {
    const consumer = kafka.consumer({
      groupId: GROUP,
      sessionTimeout: 10000,
      heartbeatInterval: 300,
      maxWaitTimeInMs: 200,
    });
    await consumer.connect();
    consumer.on(consumer.events.GROUP_JOIN, (event) => {
      owned[i] = event.payload.memberAssignment[TOPIC] || [];
      if (owned.every((own) => own.length === PARTITIONS / members)) joined();
    });
    await consumer.subscribe({ topics: [TOPIC], fromBeginning: true });
    await consumer.run({
      eachMessage: async ({ partition, message }) => {
        seen.push({
          partition,
          offset: Number(message.offset),
          key: message.key.toString(),
          value: message.value === null ? null : message.value.toString(),
          number: Number(message.headers.number.toString()),
        });
        look();
      },
    });
    consumers.push(consumer);
  }
  await shared;
  const shares = [...owned];
  const { groups } = await admin.describeGroups([GROUP]);
  return async (count) => {
    wanted = count;
    look();
    await all;
    for (const consumer of consumers) await consumer.disconnect();
    return { seen, shares, state: groups[0].state, members: groups[0].members.length };
  };
}

async function main() {
  await admin.connect();
  const found = {};
  found.created = await admin.createTopics({
    topics: [{ topic: TOPIC, numPartitions: PARTITIONS, replicationFactor: 2 }],
    waitForLeaders: true,
  });
  const two = await join(2);
  await publish(0, RECORDS);
  found.first = await two(RECORDS);
  await publish(RECORDS, RECORDS + 10);
  const one = await join(1);
  found.second = await one(10);
  found.committed = (await admin.fetchOffsets({ groupId: GROUP, topics: [TOPIC] }))[0].partitions;
  found.ends = await admin.fetchTopicOffsets(TOPIC);
  await admin.createPartitions({ topicPartitions: [{ topic: TOPIC, count: PARTITIONS + 2 }] });
  found.partitions = (await admin.fetchTopicMetadata({ topics: [TOPIC] })).topics[0].partitions.length;
  await admin.deleteGroups([GROUP]);
  found.groups = (await admin.listGroups()).groups.map((group) => group.groupId);
  await admin.deleteTopics({ topics: [TOPIC] });
  found.topics = await admin.listTopics();
  await admin.disconnect();
  console.log(JSON.stringify(found));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
