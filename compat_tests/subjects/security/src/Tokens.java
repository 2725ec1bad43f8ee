import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.DescribeDelegationTokenOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.RenewDelegationTokenOptions;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.security.token.delegation.TokenInformation;

/**
 * Asks for delegation tokens, renews, expires and describes them, logs in with them, and says what came of each, a line
 * each: `java Tokens.java PLAINTEXT CLIENTS`, HOST:PORT of a listener without and of one with log-ins.
 */
public class Tokens {
    private static final long MINUTE_MS = 60_000;
    /** The broker's delegation.token.expiry.time.ms. */
    private static final long USUAL_S = 600;
    private static String clients;

    private static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "60000");
        settings.put("default.api.timeout.ms", "120000");
        return settings;
    }

    private static Admin user(String name) {
        return login("PLAIN", "plain.PlainLoginModule", "username=\"" + name + "\" password=\"" + name + "-secret\"");
    }

    private static Admin bearer(String mechanism, String id, String secret) {
        return login(mechanism, "scram.ScramLoginModule",
            "username=\"" + id + "\" password=\"" + secret + "\" tokenauth=\"true\"");
    }

    private static Admin login(String mechanism, String module, String options) {
        Properties settings = settings(clients);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", mechanism);
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security." + module + " required " + options + ";");
        return Admin.create(settings);
    }

    private static KafkaPrincipal principal(String name) {
        return new KafkaPrincipal("User", name);
    }

    private static CreateDelegationTokenOptions options(long lifetimeMs, KafkaPrincipal... renewers) {
        return new CreateDelegationTokenOptions().maxlifeTimeMs(lifetimeMs).renewers(Arrays.asList(renewers));
    }

    /** Owner, requester, renewers; whole seconds from its issue to its end, and to its last possible end. */
    private static String shown(DelegationToken token) {
        TokenInformation info = token.tokenInfo();
        long end = info.expiryTimestamp() - info.issueTimestamp();
        long last = info.maxTimestamp() - info.issueTimestamp();
        return info.owner() + " by " + info.tokenRequester() + " " + info.renewers() + " " + end / 1000 + " " + last / 1000
            + " " + info.tokenId().length() + " " + token.hmac().length;
    }

    private static void say(String what, Callable<Object> asked) throws Exception {
        String said;
        try {
            said = String.valueOf(asked.call());
        } catch (ExecutionException error) {
            said = error.getCause().getClass().getSimpleName();
        }
        System.out.println(what + ": " + said);
    }

    private static DelegationToken create(Admin admin, CreateDelegationTokenOptions options) throws Exception {
        return admin.createDelegationToken(options).delegationToken().get();
    }

    private static List<DelegationToken> described(Admin admin, String... owners) throws Exception {
        List<KafkaPrincipal> wanted = owners.length == 0 ? null : Arrays.stream(owners).map(Tokens::principal).toList();
        return admin.describeDelegationToken(new DescribeDelegationTokenOptions().owners(wanted)).delegationTokens().get();
    }

    private static Collection<String> seen(Admin admin, String... owners) throws Exception {
        Collection<String> found = new TreeSet<>();
        described(admin, owners).forEach(token -> found.add(shown(token)));
        return found;
    }

    /** Whole seconds until a token ends, as the answer has it: `wantedS` if that is so. */
    private static String renew(Admin admin, byte[] hmac, long periodMs, long wantedS) throws Exception {
        RenewDelegationTokenOptions options = new RenewDelegationTokenOptions().renewTimePeriodMs(periodMs);
        long before = System.currentTimeMillis();
        return left(before, admin.renewDelegationToken(hmac, options).expiryTimestamp().get(), wantedS);
    }

    private static String expire(Admin admin, byte[] hmac, long periodMs, long wantedS) throws Exception {
        ExpireDelegationTokenOptions options = new ExpireDelegationTokenOptions().expiryTimePeriodMs(periodMs);
        long before = System.currentTimeMillis();
        return left(before, admin.expireDelegationToken(hmac, options).expiryTimestamp().get(), wantedS);
    }

    /** The broker counted from a moment between question and answer, however long that took. */
    private static String left(long before, long endMs, long wantedS) {
        long since = endMs - wantedS * 1000;
        return before <= since && since <= System.currentTimeMillis() ? "" + wantedS : (endMs - before) / 1000.0 + " from the question on";
    }

    /** Whole seconds from its issue to its end. */
    private static long expireLate(Admin admin, DelegationToken token) throws Exception {
        ExpireDelegationTokenOptions options = new ExpireDelegationTokenOptions().expiryTimePeriodMs(MINUTE_MS * 1000);
        long endMs = admin.expireDelegationToken(token.hmac(), options).expiryTimestamp().get();
        return (endMs - token.tokenInfo().issueTimestamp()) / 1000;
    }

    /** A change is known to the broker a moment after its answer, under KRaft. */
    private static void until(Callable<Boolean> what) throws Exception {
        long end = System.currentTimeMillis() + 120_000;
        while (!what.call()) {
            if (System.currentTimeMillis() > end) {
                throw new AssertionError("it has not come to that");
            }
            Thread.sleep(50);
        }
    }

    public static void main(String[] args) throws Exception {
        clients = args[1];
        KafkaPrincipal group = new KafkaPrincipal("Group", "ops");
        try (Admin plaintext = Admin.create(settings(args[0])); Admin alice = user("alice"); Admin bob = user("bob");
             Admin carol = user("carol")) {
            say("without log-in, create", () -> create(plaintext, options(-1)));
            say("without log-in, renew", () -> renew(plaintext, new byte[] {1}, -1, 0));
            say("without log-in, expire", () -> expire(plaintext, new byte[] {1}, -1, 0));
            say("without log-in, describe", () -> seen(plaintext));
            for (long lifetimeMs : new long[] {-1, 0, MINUTE_MS / 2, MINUTE_MS, MINUTE_MS * 1000, Long.MAX_VALUE}) {
                say("for " + lifetimeMs, () -> shown(create(carol, options(lifetimeMs))));
            }
            say("a group renews", () -> create(alice, options(-1, group)));
            say("for bob", () -> create(alice, options(-1).owner(principal("bob"))));
            say("for bob, a group renews", () -> create(alice, options(-1, group).owner(principal("bob"))));
            DelegationToken token = create(alice, options(-1, principal("bob")));
            System.out.println("made: " + shown(token));
            byte[] hmac = token.hmac();
            until(() -> described(bob).size() == 1);
            say("alice sees", () -> seen(alice));
            say("alice sees of bob", () -> seen(alice, "bob"));
            say("alice sees of carol", () -> seen(alice, "carol"));
            say("bob sees", () -> seen(bob));
            say("bob sees of alice or carol", () -> seen(bob, "alice", "carol"));
            say("carol sees of alice", () -> seen(carol, "alice"));
            say("alice renews", () -> renew(alice, hmac, MINUTE_MS * 5, 300));
            say("bob renews", () -> renew(bob, hmac, -1, USUAL_S));
            say("bob renews for long", () -> renew(bob, hmac, MINUTE_MS * 50, USUAL_S));
            say("bob renews for no time", () -> renew(bob, hmac, 0, USUAL_S));
            say("carol renews", () -> renew(carol, hmac, -1, 0));
            say("carol expires", () -> expire(carol, hmac, -1, 0));
            say("who renews what is not", () -> renew(alice, new byte[64], -1, 0));
            say("who expires what is not", () -> expire(alice, new byte[0], -1, 0));
            say("bob expires", () -> expire(bob, hmac, MINUTE_MS * 5, 300));
            say("alice expires late", () -> expireLate(alice, token));
            String id = token.tokenInfo().tokenId();
            String secret = token.hmacAsBase64String();
            for (String mechanism : new String[] {"SCRAM-SHA-256", "SCRAM-SHA-512"}) {
                try (Admin bearer = bearer(mechanism, id, secret)) {
                    say(mechanism, () -> bearer.describeCluster().nodes().get().size());
                    say("with a token, create", () -> create(bearer, options(-1)));
                    say("with a token, renew", () -> renew(bearer, hmac, -1, 0));
                    say("with a token, expire", () -> expire(bearer, hmac, -1, 0));
                    say("with a token, describe", () -> seen(bearer));
                }
            }
            String another = Base64.getEncoder().encodeToString(new byte[64]);
            try (Admin wrong = bearer("SCRAM-SHA-512", id, another); Admin none = bearer("SCRAM-SHA-512", "x", secret)) {
                say("another secret", () -> wrong.describeCluster().nodes().get());
                say("another id", () -> none.describeCluster().nodes().get());
            }
            say("alice expires now", () -> expire(alice, hmac, 0, 0));
            long end = System.currentTimeMillis();
            until(() -> System.currentTimeMillis() > end
                && described(alice, "alice").get(0).tokenInfo().expiryTimestamp() < System.currentTimeMillis());
            say("alice renews late", () -> renew(alice, hmac, -1, 0));
            say("carol renews late", () -> renew(carol, hmac, -1, 0));
            say("alice expires again", () -> expire(alice, hmac, MINUTE_MS, 0));
            say("carol expires late", () -> expire(carol, hmac, MINUTE_MS, 0));
            say("bob removes it", () -> expire(bob, hmac, -1, 0));
            until(() -> described(alice, "alice").isEmpty());
            say("alice renews what is gone", () -> renew(alice, hmac, -1, 0));
            say("alice sees nothing", () -> seen(alice));
            try (Admin gone = bearer("SCRAM-SHA-512", id, secret)) {
                say("a token that is gone", () -> gone.describeCluster().nodes().get());
            }
        }
    }
}
