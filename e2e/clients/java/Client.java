import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache Kafka's Java clients with their defaults; see ../README.md for the command line. */
public final class Client {
    private static final Duration IDLE = Duration.ofSeconds(60);

    private static byte[] value(long i) {
        int n = i % 1000 == 0 ? 65536 : (int) (1 + (i * 7919) % 1024);
        byte[] v = new byte[n];
        for (int j = 0; j < n; j++) {
            v[j] = (byte) ('a' + (i * 7 + j * 13L) % 26);
        }
        return v;
    }

    private static Properties common(String bootstrap) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("key.serializer", ByteArraySerializer.class.getName());
        p.put("value.serializer", ByteArraySerializer.class.getName());
        p.put("key.deserializer", ByteArrayDeserializer.class.getName());
        p.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return p;
    }

    private static void produce(String bootstrap, String topic, long first, long count) throws Exception {
        AtomicLong sent = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        Properties p = common(bootstrap);
        p.put("linger.ms", "5");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p)) {
            for (long i = first; i < first + count; i++) {
                byte[] key = ("k" + i).getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(topic, key, value(i)), (meta, error) -> {
                    if (error == null) {
                        sent.incrementAndGet();
                    } else {
                        failed.incrementAndGet();
                        System.err.println("send failed: " + error);
                    }
                });
            }
            producer.flush();
        }
        System.out.println("{\"sent\": " + sent + ", \"failed\": " + failed + "}");
    }

    private static void consume(String bootstrap, String topic, String group, long count) throws Exception {
        Properties p = common(bootstrap);
        p.put("group.id", group);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        Set<String> seen = new HashSet<>();
        long records = 0;
        long digest = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(p)) {
            consumer.subscribe(List.of(topic));
            long last = System.nanoTime();
            while (seen.size() < count && System.nanoTime() - last < IDLE.toNanos()) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(500))) {
                    records++;
                    last = System.nanoTime();
                    if (seen.add(new String(r.key(), StandardCharsets.UTF_8))) {
                        sha.update(r.key());
                        sha.update((byte) 0);
                        digest += ByteBuffer.wrap(sha.digest(r.value())).getLong();
                    }
                }
                consumer.commitSync();
            }
        }
        System.out.printf("{\"records\": %d, \"unique\": %d, \"digest\": \"%016x\"}%n", records, seen.size(), digest);
    }

    public static void main(String[] args) throws Exception {
        if (args.length == 5 && args[0].equals("produce")) {
            produce(args[1], args[2], Long.parseLong(args[3]), Long.parseLong(args[4]));
        } else if (args.length == 5 && args[0].equals("consume")) {
            consume(args[1], args[2], args[3], Long.parseLong(args[4]));
        } else {
            System.err.println("usage: produce BOOTSTRAP TOPIC FIRST COUNT | consume BOOTSTRAP TOPIC GROUP COUNT");
            System.exit(2);
        }
    }
}
