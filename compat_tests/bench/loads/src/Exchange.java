import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

/**
 * Requests as bytes on many connections, one under way on each: what a broker does with many small clients, by a load
 * that costs little. Frames are made beforehand; of an answer its length and its error codes are looked at.
 */
class Exchange {
    private static final long SILENCE_MS = 60_000;

    private static class Connection {
        int port;
        SocketChannel channel;
        ByteBuffer request;
        ByteBuffer answer;
        int[] errors;
        long sent;
    }

    /**
     * HOST FILE WARM_UP_S SECONDS. The file: an int32 with the number of connections; for each of them the port, the
     * length of its frame and the frame, the length of its answer, the number of places in the answer that hold an int16
     * error code, and these places, all int32.
     */
    static Map<String, Object> run(String[] words) throws Exception {
        Connection[] connections = read(words[1]);
        long[] found = new long[1 << 16];
        int count = 0;
        long total = 0;
        try (Selector selector = Selector.open()) {
            try {
                for (Connection one : connections) {
                    one.channel = SocketChannel.open(new InetSocketAddress(words[0], one.port));
                    one.channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                    one.channel.configureBlocking(false);
                    one.channel.register(selector, SelectionKey.OP_READ, one);
                }
                long begin = System.nanoTime() + (long) (Double.parseDouble(words[2]) * 1e9);
                long end = begin + (long) (Double.parseDouble(words[3]) * 1e9);
                for (Connection one : connections) {
                    send(one);
                }
                long now = System.nanoTime();
                while (count == 0 || now < end) {
                    if (selector.select(SILENCE_MS) == 0) {
                        throw new IllegalStateException("no answer for " + SILENCE_MS + " ms");
                    }
                    for (SelectionKey key : selector.selectedKeys()) {
                        Connection one = (Connection) key.attachment();
                        if (one.channel.read(one.answer) < 0) {
                            throw new IllegalStateException("the broker closed a connection");
                        }
                        if (!whole(one)) {
                            continue;
                        }
                        now = System.nanoTime();
                        total++;
                        if (now >= begin) {
                            if (count == found.length) {
                                found = Arrays.copyOf(found, 2 * count);
                            }
                            found[count++] = now - one.sent;
                        }
                        send(one);
                    }
                    selector.selectedKeys().clear();
                }
            } finally {
                for (Connection one : connections) {
                    if (one.channel != null) {
                        one.channel.close();
                    }
                }
            }
        }
        Map<String, Object> values = new TreeMap<>();
        values.put("per_s", count / Double.parseDouble(words[3]));
        values.put("total", total);
        Worker.percentiles(values, found, count);
        return values;
    }

    private static void send(Connection one) throws IOException {
        one.answer.clear();
        one.request.rewind();
        one.sent = System.nanoTime();
        one.channel.write(one.request);
        if (one.request.hasRemaining()) {
            throw new IllegalStateException("a request does not fit into the socket");
        }
    }

    /** Whether the answer is there; throws if it is not what is expected. */
    private static boolean whole(Connection one) {
        if (one.answer.position() >= 4 && one.answer.getInt(0) != one.answer.capacity() - 4) {
            throw new IllegalStateException(
                    "an answer of " + one.answer.getInt(0) + " bytes, not " + (one.answer.capacity() - 4));
        }
        if (one.answer.hasRemaining()) {
            return false;
        }
        for (int place : one.errors) {
            if (one.answer.getShort(place) != 0) {
                throw new IllegalStateException("an answer with error " + one.answer.getShort(place));
            }
        }
        return true;
    }

    private static Connection[] read(String path) throws IOException {
        try (DataInputStream file = new DataInputStream(new BufferedInputStream(new FileInputStream(path)))) {
            Connection[] connections = new Connection[file.readInt()];
            for (int number = 0; number < connections.length; number++) {
                Connection one = new Connection();
                one.port = file.readInt();
                byte[] frame = new byte[file.readInt()];
                file.readFully(frame);
                one.request = ByteBuffer.allocateDirect(frame.length).put(frame);
                one.answer = ByteBuffer.allocateDirect(file.readInt());
                one.errors = new int[file.readInt()];
                for (int place = 0; place < one.errors.length; place++) {
                    one.errors[place] = file.readInt();
                }
                connections[number] = one;
            }
            return connections;
        }
    }
}
