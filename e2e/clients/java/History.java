import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Apache Kafka's Java clients writing down what they ask for and are told: ../README.md and ../../history/README.md. */
public final class History {
    private static final long OUTSTANDING_MAX = 2000;

    /** One process's history. */
    private static final class Lines implements AutoCloseable {
        private final BufferedWriter out;
        private boolean begun;

        Lines(String path, long number, String name) throws IOException {
            out = Files.newBufferedWriter(Path.of(path), StandardCharsets.US_ASCII);
            line("P " + number + " " + name);
        }

        synchronized void line(String text) {
            try {
                out.write(text);
                out.write('\n');
                if (!begun && (text.startsWith("a ") || text.startsWith("p "))) {
                    out.flush(); // whoever waits for this client to work sees it
                    begun = true;
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        @Override
        public synchronized void close() throws IOException {
            out.close();
        }
    }

    private static long now() {
        Instant i = Instant.now();
        return i.getEpochSecond() * 1_000_000 + i.getNano() / 1000;
    }

    /** Becomes true when whoever started us lets go of our standard input. */
    private static AtomicBoolean untilStdinEnds() {
        AtomicBoolean done = new AtomicBoolean();
        Thread t = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException e) {
                System.err.println(e);
            }
            done.set(true);
        });
        t.setDaemon(true);
        t.start();
        return done;
    }

    private static List<TopicPartition> places(String spec) {
        List<TopicPartition> out = new ArrayList<>();
        for (String part : spec.split(",")) {
            int colon = part.lastIndexOf(':');
            for (int i = 0; i < Integer.parseInt(part.substring(colon + 1)); i++) {
                out.add(new TopicPartition(part.substring(0, colon), i));
            }
        }
        return out;
    }

    private static String leading(String value) {
        int space = value.indexOf(' ');
        return space < 0 ? value : value.substring(0, space);
    }

    private static Properties common(String bootstrap) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("key.serializer", StringSerializer.class.getName());
        p.put("value.serializer", StringSerializer.class.getName());
        p.put("key.deserializer", StringDeserializer.class.getName());
        p.put("value.deserializer", StringDeserializer.class.getName());
        return p;
    }

    private static void produce(String path, long number, String bootstrap, String spec, double rate, String mode)
            throws Exception {
        boolean idempotent = mode.equals("idempotent");
        List<TopicPartition> places = places(spec);
        AtomicLong acked = new AtomicLong();
        AtomicLong unknown = new AtomicLong();
        Properties p = common(bootstrap); // the defaults: idempotent, acks=all, five requests in flight
        if (!idempotent) {
            p.put("enable.idempotence", "false");
            p.put("acks", "1");
            p.put("max.in.flight.requests.per.connection", "1");
        }
        AtomicBoolean done = untilStdinEnds();
        long i = 0;
        try (Lines out = new Lines(path, number, "java-" + mode + (idempotent ? " idempotent" : " ordered"))) {
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(p)) {
                long begun = System.nanoTime();
                while (!done.get()) {
                    long due = Math.min((long) ((System.nanoTime() - begun) / 1e9 * rate), acked.get() + unknown.get() + OUTSTANDING_MAX);
                    for (; i < due; i++) {
                        TopicPartition to = places.get((int) (i % places.size()));
                        String value = Long.toString((number << 40) + i);
                        out.line("s " + now() + " " + to.topic() + " " + to.partition() + " " + value + " " + i % 53);
                        producer.send(new ProducerRecord<>(to.topic(), to.partition(), Long.toString(i % 53),
                                value + " " + "x".repeat((int) (i * 7919 % 300))), (meta, error) -> {
                            if (error == null) {
                                acked.incrementAndGet();
                                out.line("a " + now() + " " + value + " " + meta.partition() + " " + (meta.hasOffset() ? meta.offset() : -1));
                            } else {
                                unknown.incrementAndGet();
                                out.line((error instanceof RecordTooLargeException ? "f " : "u ") + now() + " " + value);
                                System.err.println("send failed: " + error);
                            }
                        });
                    }
                    Thread.sleep(5);
                }
                producer.flush();
            }
        }
        System.out.println("{\"sent\": " + i + ", \"acked\": " + acked + ", \"unknown\": " + unknown + "}");
    }

    /** Writes a line for each partition of a poll; returns the next offsets. */
    private static Map<TopicPartition, OffsetAndMetadata> log(Lines out, long t0, ConsumerRecords<String, String> records) {
        long t1 = now();
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        for (TopicPartition tp : records.partitions()) {
            StringBuilder b = new StringBuilder("p " + t0 + " " + t1 + " " + tp.topic() + " " + tp.partition());
            for (ConsumerRecord<String, String> r : records.records(tp)) {
                b.append(' ').append(r.offset()).append(':').append(leading(r.value()));
                next.put(tp, new OffsetAndMetadata(r.offset() + 1));
            }
            out.line(b.toString());
        }
        return next;
    }

    private static void group(String path, long number, String bootstrap, String spec, String group, String sessionMs)
            throws Exception {
        Properties p = common(bootstrap);
        p.put("group.id", group);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("session.timeout.ms", sessionMs);
        AtomicBoolean done = untilStdinEnds();
        Set<String> topics = new HashSet<>();
        places(spec).forEach(tp -> topics.add(tp.topic()));
        long read = 0;
        long commits = 0;
        try (Lines out = new Lines(path, number, "java-group");
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p)) {
            consumer.subscribe(topics, new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    // nothing is kept for a partition
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    long t0 = now();
                    try {
                        consumer.committed(new HashSet<>(partitions)).forEach((tp, at) -> out.line("o " + t0 + " " + now() + " " + group
                                + " " + tp.topic() + " " + tp.partition() + " " + (at == null ? -1 : at.offset())));
                    } catch (RuntimeException e) {
                        System.err.println("committed: " + e);
                    }
                    partitions.forEach(tp -> out.line("r " + now() + " " + tp.topic() + " " + tp.partition() + " -1"));
                }
            });
            while (!done.get()) {
                long t0 = now();
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                Map<TopicPartition, OffsetAndMetadata> next = log(out, t0, records);
                read += records.count();
                if (next.isEmpty()) {
                    continue;
                }
                long c0 = now();
                next.forEach((tp, at) -> out.line("b " + c0 + " " + group + " " + tp.topic() + " " + tp.partition() + " " + at.offset()));
                String how = "ok";
                try {
                    consumer.commitSync(next);
                    commits++;
                } catch (RuntimeException e) {
                    how = "unknown"; // timed out or fenced: it may have been written
                    System.err.println("commit: " + e);
                }
                long c1 = now();
                for (Map.Entry<TopicPartition, OffsetAndMetadata> e : next.entrySet()) {
                    out.line("c " + c0 + " " + c1 + " " + group + " " + e.getKey().topic() + " " + e.getKey().partition() + " "
                            + e.getValue().offset() + " " + how);
                }
            }
        }
        System.out.println("{\"read\": " + read + ", \"commits\": " + commits + "}");
    }

    public static void main(String[] args) throws Exception {
        if (args.length == 7 && args[0].equals("produce")) {
            produce(args[1], Long.parseLong(args[2]), args[3], args[4], Double.parseDouble(args[5]), args[6]);
        } else if ((args.length == 6 || args.length == 7) && args[0].equals("group")) {
            group(args[1], Long.parseLong(args[2]), args[3], args[4], args[5], args.length == 7 ? args[6] : "10000");
        } else {
            System.err.println("usage: produce FILE NUMBER BOOTSTRAP TOPICS RATE MODE | group FILE NUMBER BOOTSTRAP TOPICS GROUP [SESSION_MS]");
            System.exit(2);
        }
    }
}
