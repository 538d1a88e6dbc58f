/*
 * The flat door from Java: payments that happen once. docs/c-api.md tells how to build and run it.
 *
 * It calls the library through JNI (flat_jni.c), which works on Java 17 and newer. From Java 22 on,
 * java.lang.foreign does without C. Its forerunner in Java 17, jdk.incubator.foreign, is gone in 19.
 */
import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import java.util.regex.Pattern;

public final class Flat {
    // Many who ask for one order are not an agent in a loop.
    private static final String OPTIONS = """
            {"url": "sqlite:%s", "contract":
             "version: 1\\ntools:\\n  pay: { class: irreversible, window: forever, loop: off }\\n"}""";

    private static int payments = 0;

    public static void main(String[] args) {
        try (var ledger = new Ledger(OPTIONS.formatted(args[0]))) {
            var others = new ArrayList<CompletableFuture<String>>();
            once(ledger, "order-1", 100, Flat::pay);
            once(ledger, "order-1", 100, Flat::pay);
            once(ledger, "order-1", 999, Flat::pay);
            once(ledger, "order-2", 500, () -> {
                while (others.size() < 100) // ask while it is being paid
                    others.add(ledger.submit(begin("order-2", 500)));
                return pay();
            });
            long replays = others.stream().map(CompletableFuture::join)
                    .filter(answer -> member(answer, "verdict").equals("replay")).count();
            System.out.printf("%d payments; %d asked meanwhile, %d replays%n",
                    payments, others.size(), replays);
        } catch (IllegalStateException e) {
            System.err.println(e.getMessage());
            System.exit(1);
        }
    }

    private static String pay() {
        return "receipt " + ++payments;
    }

    /** Asks whether to pay. The key is the order, so another amount for it is refused. */
    private static String begin(String order, int amount) {
        return """
                {"op": "begin", "scope": "shop", "tool": "pay", "key": "%s",
                 "args": {"amount": %d}, "wait_ms": 60000}""".formatted(order, amount);
    }

    /** Does the work, unless it is done. */
    private static void once(Ledger ledger, String order, int amount, Supplier<String> work) {
        String answer = ledger.submit(begin(order, amount)).join();
        if (member(answer, "verdict").equals("execute"))
            answer = ledger.submit("""
                    {"op": "commit", "claim": "%s", "kind": "success", "value": "%s"}"""
                    .formatted(member(answer, "claim"), work.get())).join();
        System.out.println(order + ": " + shown(answer));
    }

    /** An answer, or a problem: only that has a code. */
    static String shown(String answer) {
        return member(answer, "code").isEmpty()
                ? member(answer, "verdict") + ", " + member(answer, "value")
                : member(answer, "code") + ": " + member(answer, "message") + " "
                        + member(answer, "corrective_action");
    }

    /** A member that is a short text. Java has no JSON reader of its own: use a library's. */
    private static String member(String json, String name) {
        var found = Pattern.compile('"' + name + "\":\"((?:[^\"\\\\]|\\\\.)*)\"").matcher(json);
        return found.find() ? found.group(1) : "";
    }
}

/** An open ledger. Any number of threads may use it. */
final class Ledger implements AutoCloseable {
    private static native long open(byte[] options, byte[][] problem);
    private static native boolean submit(long flat, long tag, byte[] request);
    private static native byte[] take(long flat, long[] tag);
    private static native void end(long flat);

    static {
        System.loadLibrary("flat_jni");
    }

    private static final long LAST = 0; // the tag of a request that ends the taker

    private final long flat;
    private final AtomicLong tags = new AtomicLong(LAST);
    private final Map<Long, CompletableFuture<String>> waiting = new ConcurrentHashMap<>();
    private final Thread taker = new Thread(this::takeAll, "taker");

    Ledger(String options) {
        var problem = new byte[1][];
        flat = open(options.getBytes(UTF_8), problem);
        if (flat == 0)
            throw new IllegalStateException(Flat.shown(new String(problem[0], UTF_8)));
        taker.start();
    }

    /** Hands a request in. However many answers are waited for, one thread takes them. */
    CompletableFuture<String> submit(String request) {
        var answer = new CompletableFuture<String>();
        long tag = tags.incrementAndGet();
        waiting.put(tag, answer);
        if (!submit(flat, tag, request.getBytes(UTF_8)))
            throw new OutOfMemoryError("the request was not handed in");
        return answer;
    }

    private void takeAll() {
        var tag = new long[1];
        for (;;) {
            String answer = new String(take(flat, tag), UTF_8);
            if (tag[0] == LAST)
                return;
            waiting.remove(tag[0]).complete(answer);
        }
    }

    /** Ends the ledger. All answers must have come. */
    @Override
    public void close() {
        submit(flat, LAST, "{\"op\": \"stops\"}".getBytes(UTF_8));
        try {
            taker.join();
            end(flat);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
