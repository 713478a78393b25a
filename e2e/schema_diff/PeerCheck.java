import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads `request|response KEY VERSION HEX` lines, has Kafka's own classes decode and encode each
 * message, and compares the bytes. Versions that this client library does not serve are skipped.
 * One check an API; exit 0 when all pass.
 */
public class PeerCheck {
    static String check(String[] word) {
        ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(word[1]));
        short version = Short.parseShort(word[2]);
        boolean request = word[0].equals("request");
        if (version < type.lowestSupportedVersion() || version > type.highestSupportedVersion(false)) {
            return "skipped";
        }
        byte[] bytes = word.length > 3 ? HexFormat.of().parseHex(word[3]) : new byte[0];
        ByteBuffer in = ByteBuffer.wrap(bytes);
        ApiMessage message = request ? type.newRequest() : type.newResponse();
        message.read(new ByteBufferAccessor(in), version);
        if (in.hasRemaining()) {
            return in.remaining() + " bytes left";
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(out), cache, version);
        return out.flip().equals(ByteBuffer.wrap(bytes)) ? "same" : "encodes differently: " + message;
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> failures = new TreeMap<>();
        Map<String, Integer> same = new TreeMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            String[] word = line.trim().split(" ");
            String api;
            try {
                api = ApiMessageType.fromApiKey(Short.parseShort(word[1])).name;
            } catch (RuntimeException e) {
                continue; // a key that this library does not know
            }
            String result;
            try {
                result = check(word);
            } catch (RuntimeException e) {
                result = e.toString();
            }
            if (result.equals("same")) {
                same.merge(api, 1, Integer::sum);
            } else if (!result.equals("skipped")) {
                failures.putIfAbsent(api, word[0] + " v" + word[2] + ": " + result + " " + line);
            }
        }
        failures.forEach((api, why) -> System.out.println("FAIL " + api + " " + why));
        same.keySet().removeAll(failures.keySet());
        System.out.println(same.size() + " passed, " + failures.size() + " failed");
        System.exit(failures.isEmpty() && !same.isEmpty() ? 0 : 1);
    }
}
