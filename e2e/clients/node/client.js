// kafkajs behind the command line of ../README.md.
'use strict';
const {createHash} = require('crypto');
const {Kafka, Partitioners, logLevel} = require('kafkajs');

const BATCH = 500;
const IDLE_MS = 60000;

function value(i) {
  const n = i % 1000 === 0 ? 65536 : 1 + (i * 7919) % 1024;
  const v = Buffer.alloc(n);
  for (let j = 0; j < n; j++) v[j] = 97 + (i * 7 + j * 13) % 26;
  return v;
}

function client(bootstrap) {
  return new Kafka({clientId: 'e2e', brokers: bootstrap.split(','), logLevel: logLevel.ERROR, retry: {retries: 20}});
}

async function produce(bootstrap, topic, first, count) {
  const producer = client(bootstrap).producer({createPartitioner: Partitioners.DefaultPartitioner});
  let sent = 0;
  let failed = 0;
  await producer.connect();
  for (let i = first; i < first + count; i += BATCH) {
    const messages = [];
    for (let k = i; k < Math.min(i + BATCH, first + count); k++) messages.push({key: `k${k}`, value: value(k)});
    try {
      await producer.send({topic, messages, acks: -1});
      sent += messages.length;
    } catch (e) {
      failed += messages.length;
      console.error('send failed:', e.message);
    }
  }
  await producer.disconnect();
  console.log(JSON.stringify({sent, failed}));
}

async function consume(bootstrap, topic, groupId, count) {
  const consumer = client(bootstrap).consumer({groupId});
  const seen = new Set();
  let records = 0;
  let digest = 0n;
  let last = Date.now();
  await consumer.connect();
  await consumer.subscribe({topic, fromBeginning: true});
  const done = new Promise((resolve) => {
    const timer = setInterval(() => {
      if (seen.size >= count || Date.now() - last > IDLE_MS) {
        clearInterval(timer);
        resolve();
      }
    }, 50);
  });
  await consumer.run({
    eachBatch: async ({batch, resolveOffset, heartbeat}) => {
      for (const m of batch.messages) {
        records++;
        last = Date.now();
        const key = m.key.toString();
        if (!seen.has(key)) {
          seen.add(key);
          const h = createHash('sha256').update(m.key).update(Buffer.of(0)).update(m.value).digest();
          digest = BigInt.asUintN(64, digest + h.readBigUInt64BE(0));
        }
        resolveOffset(m.offset);
      }
      await heartbeat();
    },
  });
  await done;
  await consumer.disconnect();
  console.log(JSON.stringify({records, unique: seen.size, digest: digest.toString(16).padStart(16, '0')}));
}

async function main(argv) {
  if (argv.length === 5 && argv[0] === 'produce') return produce(argv[1], argv[2], Number(argv[3]), Number(argv[4]));
  if (argv.length === 5 && argv[0] === 'consume') return consume(argv[1], argv[2], argv[3], Number(argv[4]));
  console.error('usage: produce BOOTSTRAP TOPIC FIRST COUNT | consume BOOTSTRAP TOPIC GROUP COUNT');
  process.exitCode = 2;
}

main(process.argv.slice(2)).catch((e) => {
  console.error(e);
  process.exit(1);
});
