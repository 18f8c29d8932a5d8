import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { DeliveryService } from "../../../lib/automation/channels/delivery_service.ts";
import { DELIVERIES, type DeliveryRecord } from "../../../lib/automation/channels/delivery_record.ts";
import { createAlertWatch } from "../../../lib/automation/notify/alert_watch.ts";
import { createAlertWork } from "../../../lib/automation/notify/alert_work.ts";
import { approvalAlert, runAlert } from "../../../lib/automation/notify/alert_texts.ts";
import { bodyHmac } from "../../../lib/base/body_hmac.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../../lib/base/telemetry/metrics.ts";
import { defaultConfig } from "../../../lib/config/config.ts";
import { sendsAnswerLinks, tellsOfApprovals } from "../../../lib/config/schema/notify.ts";
import { validateConfig } from "../../../lib/config/validate_config.ts";
import { StoredApprovals } from "../../../lib/guard/stored_approvals.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { runOwnCommand } from "../../../lib/system/process/own_command.ts";
import { createCrashingStore } from "../../support/crashing_store.ts";
import { createFakeAudit } from "../../support/fake_audit.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { fetchSetUp, fetchSites, STRICT } from "../../support/fetch_bench.ts";
import { newApproval } from "../../support/new_approval.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { ask, supervised } from "../../support/supervised.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

const { site } = fetchSites();
const SECRETS: Readonly<Record<string, string>> = {
  HOOK_SECRET: "the secret of the hook",
  TOPIC: "a-topic-nobody-guesses",
  NTFY_TOKEN: "tk_of_ntfy",
  APP: "token-of-the-app",
  PERSON: "key-of-the-user",
};
const LINK = "https://postern.example/answer/secret";
const HOUR_MS = 3_600_000;

interface SetUp {
  readonly store?: Store;
  readonly clock?: FakeClock;
  readonly seed?: number;
  readonly secrets?: Readonly<Record<string, string>>;
}

type Rule = { readonly kind: "webhook" | "ntfy" | "pushover" | "command" } & Readonly<Record<string, unknown>>;

/** Makes approvals and deliveries over one store, as a gateway joins them, with the real fetch and programs. */
function setUp(rule: Rule, options: SetUp = {}) {
  const { store = createMemoryStore(), clock = createFakeClock(), seed = 1, secrets = SECRETS } = options;
  const random = createSeededRandom(seed);
  const checked = validateConfig([{
    gateway: { public_url: "https://postern.example/" },
    notify: [{ name: "phone", events: ["approval_waiting", "run_ended", "run_failed"], ...rule }],
  }]);
  assert.ok("config" in checked, JSON.stringify(checked));
  const { config } = checked;
  const environment = (name: string) => secrets[name];
  const approvals = new StoredApprovals({
    ...{ store, clock, random, log: SILENT, metrics: createMetrics(), audit: createFakeAudit(store).append },
    tell: (...given) => deliveries.alert(approvalAlert(...given)),
  });
  const deliveries = new DeliveryService({
    ...{ store, clock, random, log: SILENT, metrics: createMetrics(), environment },
    runs: () => undefined,
    fetch: () => Promise.resolve(fetchSetUp({ clock: systemClock }).guarded),
    targetOf: () => undefined,
    rules: () => STRICT,
    retentionDays: () => 0,
    notify: () => config.notify,
    alerts: createAlertWork({
      ...{ store, clock, config: () => config },
      isPending: async (id) => (await approvals.get(id))?.status === "pending",
      makeLink: () => Promise.resolve(LINK),
      run: (words, input, signal) =>
        runOwnCommand({
          ...{ words, input, signal, clock: systemClock, home: "/", environment: { ...secrets, LANG: "C" } },
          commands: { find: () => Promise.resolve(undefined) },
        }),
    }),
  });
  const asks = (more: Parameters<typeof newApproval>[0] = {}) =>
    approvals.ask(newApproval({ timeoutMs: 24 * HOUR_MS, ...more }));
  const records = async () => (await deliveries.page({ limit: 1000 })).deliveries;
  /** Waits until a delivery is as it should be: requests and programs are real, and take real time. */
  const becomes = async (is: (record: DeliveryRecord) => boolean) => {
    await until(async () => (await records()).some(is));
    return (await records()).find(is);
  };
  return { store, clock, approvals, deliveries, asks, records, becomes };
}

const delivered = ({ status }: DeliveryRecord) => status === "delivered";

describe("a message of [[notify]]", () => {
  test("goes to ntfy with Allow and Deny, all of it in the body", async () => {
    const server = await site((_request, response) => response.end("{}"));
    const rule = { kind: "ntfy", url: server.origin, topic_env: "TOPIC", token_env: "NTFY_TOKEN" } as const;
    const { asks, clock, becomes } = setUp(rule);
    await asks({ input: { command: "echo 'a\r\nX-Evil: 1'" } });
    await clock.advance(9_000);
    assert.equal(server.seen.length, 0);
    await clock.advance(1_000);
    await becomes(delivered);
    const [sent, ...more] = server.seen;
    assert.equal(more.length, 0);
    assert.deepEqual([sent?.path, sent?.headers.authorization, sent?.headers["x-evil"]], [
      "/",
      "Bearer tk_of_ntfy",
      undefined,
    ]);
    const { topic, title, message, priority, click, actions } = JSON.parse(sent?.body ?? "{}");
    assert.deepEqual([topic, priority], ["a-topic-nobody-guesses", 4]);
    assert.match(title, /^The agent wants to run "echo 'a[^\r\n]*X-Evil: 1'"$/);
    assert.match(message, /^shell \(write\) in \/work\n.*echo 'a.*X-Evil/s);
    assert.equal(click, "https://postern.example/#approvals");
    assert.deepEqual(actions, [
      { action: "view", label: "Allow", url: `${LINK}#allow` },
      { action: "view", label: "Deny", url: `${LINK}#deny` },
    ]);
  });

  test("has no link for an approval whose input has masked parts", async () => {
    const server = await site((_request, response) => response.end("{}"));
    const { asks, becomes } = setUp({ kind: "ntfy", url: server.origin, topic_env: "TOPIC", window_secs: 0 });
    await asks({ masked: [{ name: "a token", isOwn: true }] });
    await becomes(delivered);
    const { actions } = JSON.parse(server.seen[0]?.body ?? "{}");
    assert.deepEqual(actions, [{ action: "view", label: "Open", url: "https://postern.example/#approvals" }]);
  });

  test("goes to Pushover as a form, and what Pushover refuses is not sent again", async () => {
    const server = await site((_request, response) => response.writeHead(server.seen.length > 1 ? 200 : 400).end("{}"));
    const rule = {
      kind: "pushover",
      url: `${server.origin}/1/messages.json`,
      token_env: "APP",
      user_env: "PERSON",
    } as const;
    const { asks, clock, becomes, deliveries } = setUp({ ...rule, window_secs: 0 });
    await asks();
    const failed = await becomes(({ status }) => status === "failed");
    assert.deepEqual([failed?.attempts, failed?.last_error], [1, "the receiver answered 400"]);
    const form = Object.fromEntries(new URLSearchParams(server.seen[0]?.body));
    assert.deepEqual(
      [form["token"], form["user"], form["title"], form["priority"], form["url"], form["url_title"]],
      ["token-of-the-app", "key-of-the-user", "The agent wants to run ls", "1", LINK, "Allow or deny"],
    );
    await clock.advance(24 * HOUR_MS - 60_000);
    assert.equal(server.seen.length, 1);
    await deliveries.resolve(failed?.run_id ?? "", "release");
    await becomes(delivered);
  });

  test("goes to a webhook with a signature; a redirect is not followed, and is tried again", async () => {
    const stolen = await site((_request, response) => response.end());
    const server = await site((_request, response) => {
      if (server.seen.length > 1) return void response.end();
      response.writeHead(307, { location: stolen.origin }).end();
    });
    const rule = { kind: "webhook", url: `${server.origin}/hook`, secret_env: "HOOK_SECRET", window_secs: 0 } as const;
    const { asks, clock, becomes } = setUp(rule);
    await asks();
    const waiting = await becomes(({ attempts }) => attempts === 1);
    assert.match(waiting?.last_error ?? "", /redirects more than 0 times/);
    await clock.advance(10_000);
    await becomes(delivered);
    const [first, second] = server.seen;
    assert.deepEqual([server.seen.length, stolen.seen.length], [2, 0]);
    assert.equal(first?.headers["idempotency-key"], second?.headers["idempotency-key"]);
    const [, time = "", hex] = /^t=(\d+),sha256=(.*)$/.exec(String(second?.headers["x-postern-signature"])) ?? [];
    assert.equal(hex, Buffer.from(bodyHmac("the secret of the hook", time, second?.body ?? "")).toString("hex"));
    const { rule: name, count, answer_url, page_url } = JSON.parse(second?.body ?? "{}");
    assert.deepEqual([name, count, answer_url, page_url], ["phone", 1, LINK, "https://postern.example/#approvals"]);
  });

  test("goes to a command on its input: no text comes into its words, and no secret into its environment", async () => {
    await withTemporaryFolder(async (folder) => {
      const file = join(folder, "told");
      const command = [
        "/bin/sh",
        "-c",
        'cat > "$0.part"; env >> "$0.part"; echo "args $#" >> "$0.part"; mv "$0.part" "$0"',
        file,
      ];
      const { asks, becomes } = setUp({ kind: "command", command, window_secs: 0 });
      await asks({ tool: "x; touch /tmp/never $(id)\n--evil" });
      await becomes(delivered);
      assert.ok(existsSync(file));
      const text = readFileSync(file, "utf8");
      assert.match(text, /^The agent wants to call "x; touch \/tmp\/never \$\(id\)[^\n]*--evil"\n/);
      assert.match(text, /\nLANG=C\n/);
      assert.match(text, /\nargs 0\n/);
      for (const secret of Object.values(SECRETS)) assert.ok(!text.includes(secret));
    });
  });

  test("whose command fails, or whose secret is missing, says so and is tried again", async () => {
    const broken = setUp({ kind: "command", command: ["/bin/sh", "-c", "echo secret >&2; exit 3"], window_secs: 0 });
    await broken.asks();
    const failed = await broken.becomes(({ attempts }) => attempts === 1);
    assert.equal(failed?.status, "waiting");
    assert.match(failed?.last_error ?? "", /it ended with status 3$/);
    assert.equal(await broken.deliveries.test("phone", AbortSignal.timeout(60_000)), failed?.last_error);
    const rule = { kind: "webhook", url: "http://127.0.0.1:9/", secret_env: "HOOK_SECRET", window_secs: 0 } as const;
    const bare = setUp(rule, { secrets: {} });
    await bare.asks();
    const waiting = await bare.becomes(({ attempts }) => attempts === 1);
    assert.equal(waiting?.last_error, "the variable HOOK_SECRET is not set");
    await assert.rejects(() => bare.deliveries.test("none", AbortSignal.timeout(60_000)), { code: "not_found" });
  });

  test("tells of 100 questions at once as one, with their count", async () => {
    const server = await site((_request, response) => response.end("{}"));
    const { asks, clock, becomes, records } = setUp({ kind: "ntfy", url: server.origin, topic_env: "TOPIC" });
    for (let each = 0; each < 100; each++) await asks({ callId: `call_${each}` });
    await clock.advance(10_000);
    await becomes(delivered);
    assert.equal(server.seen.length, 1);
    const { title, message, actions } = JSON.parse(server.seen[0]?.body ?? "{}");
    assert.equal(title, "Postern: 100 approvals wait for an answer");
    assert.match(message, /\nand 95 more$/);
    assert.deepEqual(actions, [{ action: "view", label: "Open", url: "https://postern.example/#approvals" }]);
    await clock.advance(HOUR_MS);
    assert.equal(server.seen.length, 1);
    assert.ok((await records()).every(delivered));
  });

  test("takes no younger message along when it has had its time or its attempts", async () => {
    for (const [hours, attempts] of [[25, 0], [1, 9]] as const) {
      const server = await site((_request, response) =>
        response.writeHead(attempts > 0 && server.seen.length === 1 ? 500 : 200).end()
      );
      const rule = { kind: "ntfy", url: server.origin, topic_env: "TOPIC" } as const;
      const [store, clock] = [createMemoryStore(), createFakeClock()];
      const first = setUp(rule, { store, clock });
      await first.asks({ timeoutMs: 90 * HOUR_MS });
      await first.deliveries.stop();
      const [old] = await first.records();
      await store.batch([
        { op: "put", collection: DELIVERIES.name, key: old?.run_id ?? "", body: { ...old, attempts } },
      ]);
      await clock.advance(hours * HOUR_MS);
      const next = setUp(rule, { store, clock, seed: 2 });
      await next.asks({ timeoutMs: 90 * HOUR_MS, callId: "call_2" });
      await next.deliveries.start();
      await next.becomes(({ run_id: id, status }) => id === old?.run_id && status === "failed");
      await clock.advance(60_000);
      const young = await next.becomes((each) => each.run_id !== old?.run_id && each.status !== "waiting");
      assert.equal(young?.status, "delivered");
      assert.match(JSON.parse(server.seen.at(-1)?.body ?? "{}").title, /^The agent wants to run ls$/);
      await next.deliveries.stop();
    }
  });

  test("leaves room for the replies of channels, however many wait for a receiver that is away", async () => {
    const { store, deliveries } = setUp({ kind: "command", command: ["true"], window_secs: 3600 });
    const alert = { event: "run_ended", title: "A run has ended", text: "", page: "runs" } as const;
    let told = 0;
    for (let each = 0; each < 5_010; each++) {
      const one = await deliveries.alert(alert);
      if (one === undefined) break;
      await store.batch(one.writes);
      one.written();
      told++;
    }
    assert.equal(told, 5_000);
  });

  test("is not sent for an approval that was answered within its window", async () => {
    const server = await site((_request, response) => response.end());
    const { asks, approvals, clock, records } = setUp({ kind: "ntfy", url: server.origin, topic_env: "TOPIC" });
    const approval = await asks();
    await approvals.answer(approval?.id ?? "", { decision: "deny", by: { via: "http", tokenId: null } });
    await clock.advance(60_000);
    const [record] = await records();
    assert.deepEqual([record?.status, record?.last_error], [
      "dropped",
      "the approval was settled before it was told of",
    ]);
    assert.equal(server.seen.length, 0);
  });

  test("waits for the end of the quiet hours in their zone; an approval breaks through where the rule says so", async () => {
    const server = await site((_request, response) => response.end());
    const quiet = { quiet_hours: "22:00-07:00", timezone: "Europe/Berlin", window_secs: 0 };
    const rule = { kind: "ntfy", url: server.origin, topic_env: "TOPIC", ...quiet } as const;
    // One in the morning in Berlin
    const night = createFakeClock(Date.UTC(2026, 0, 1));
    const calm = setUp(rule, { clock: night });
    await calm.asks();
    await calm.asks({ callId: "call_2" });
    const ended = await calm.deliveries.alert({ event: "run_ended", title: "A run has ended", text: "", page: "runs" });
    await calm.store.batch(ended?.writes ?? []);
    ended?.written();
    await night.advance(6 * HOUR_MS - 1);
    assert.equal(server.seen.length, 0);
    await night.advance(1);
    await calm.becomes(delivered);
    assert.equal(server.seen.length, 1);
    assert.equal(
      JSON.parse(server.seen[0]?.body ?? "{}").title,
      "Postern: 2 approvals wait for an answer, 1 run has ended",
    );
    const loud = setUp({ ...rule, approvals_break_quiet: true }, { clock: createFakeClock(Date.UTC(2026, 0, 1)) });
    await loud.asks();
    await loud.becomes(delivered);
    assert.equal(server.seen.length, 2);
  });

  test("outlives a crash at any write: what is filed is told of, at least once", async () => {
    const server = await site((_request, response) => response.end());
    const rule = { kind: "webhook", url: server.origin, secret_env: "HOOK_SECRET", window_secs: 0 } as const;
    let filed = 0;
    for (let crashAt = 1; crashAt <= 2; crashAt++) {
      for (const when of ["before", "after"] as const) {
        const store = createMemoryStore();
        const crashing = createCrashingStore(store, { crashAt, when });
        const before = server.seen.length;
        const first = setUp(rule, { store: crashing });
        await first.asks().catch(() => {});
        await crashing.crashed;
        const next = setUp(rule, { store, seed: 2 });
        await next.deliveries.start();
        const records = await next.records();
        // The approval and its message are there, or neither is
        assert.equal(records.length, (await next.approvals.list({ limit: 10 })).approvals.length);
        filed += records.length;
        if (records.length === 0) continue;
        await next.becomes(delivered);
        const keys = server.seen.slice(before).map(({ headers }) => headers["idempotency-key"]);
        assert.ok(keys.length >= 1 && new Set(keys).size === 1);
        await next.deliveries.stop();
      }
    }
    assert.equal(filed, 3);
  });
});

describe("the end of a run", () => {
  test("is told of in one transaction with it, as ended or failed; a cancelled run is not", async () => {
    const server = await site((_request, response) => response.end());
    const rule = { kind: "webhook", url: server.origin, secret_env: "HOOK_SECRET", window_secs: 0 } as const;
    const { store, deliveries, records, becomes } = setUp(rule);
    const { runs } = supervised(["All is well"], {
      store,
      tellEnd: async (run) => {
        const alert = runAlert(run);
        return alert && await deliveries.alert(alert);
      },
    });
    const run = await runs.start(ask("Look after it", { durable: true }));
    await runs.ended(run.id, AbortSignal.timeout(60_000));
    await becomes(delivered);
    const [record] = await records();
    assert.deepEqual([record?.alert?.event, record?.alert?.page], ["run_ended", `runs/${run.id}`]);
    assert.equal(record?.alert?.text, "Look after it\nAll is well");
    const ended = await runs.get(run.id);
    assert.ok(ended);
    assert.equal(runAlert({ ...ended, status: "cancelled" }), undefined);
    assert.equal(runAlert({ ...ended, kind: "subagent" }), undefined);
    const broken = { ...ended, status: "failed", error: { code: "x", message: "It broke\u202e" } } as const;
    assert.deepEqual(runAlert(broken)?.text, "Look after it\nIt broke\\u202e");
  });
});

test("states that no record tells of are told when they begin: once a day, or once until they have ended", async () => {
  const told: string[] = [];
  let degraded: string | undefined;
  let tokens = 799;
  let today = "2026-01-01";
  const config = validateConfig([{
    budget: { tokens_per_day: 1000 },
    notify: [{
      ...{ name: "a", kind: "command", command: ["true"] },
      events: ["budget_near", "gateway_degraded", "sign_in_needed"],
    }],
  }]);
  assert.ok("config" in config);
  const look = createAlertWatch({
    config: () => config.config,
    today: () => today,
    states: {
      degraded: () => degraded,
      spent: () => Promise.resolve({ day: today, tokens }),
      signIns: () => Promise.resolve(["wiki"]),
    },
    tell({ event, key = "" }) {
      told.push(`${event} ${key}`.trim());
      return Promise.resolve();
    },
  });
  await look();
  assert.deepEqual(told.splice(0), ["sign_in_needed wiki 2026-01-01"]);
  [degraded, tokens] = ["The disk is full", 800];
  await look();
  await look();
  assert.deepEqual(told.splice(0), ["gateway_degraded", "budget_near 2026-01-01"]);
  degraded = undefined;
  await look();
  [degraded, today] = ["The disk is full", "2026-01-02"];
  await look();
  assert.deepEqual(told, ["gateway_degraded", "budget_near 2026-01-02", "sign_in_needed wiki 2026-01-02"]);
});

test("[[notify]] refuses rules that could not deliver, by their key", () => {
  const reasons = (rule: object, gateway = {}) => {
    const result = validateConfig([{ gateway, notify: [{ name: "a", events: ["run_ended"], ...rule }] }]);
    return "findings" in result ? result.findings.map(({ path }) => path.join(".")) : [];
  };
  assert.deepEqual(reasons({ kind: "webhook", url: "https://a.example" }), ["notify.0.secret_env"]);
  assert.deepEqual(reasons({ kind: "ntfy" }), ["notify.0.topic_env"]);
  assert.deepEqual(reasons({ kind: "pushover", token_env: "A" }), ["notify.0.user_env"]);
  assert.deepEqual(reasons({ kind: "command" }), ["notify.0.command"]);
  const command = { kind: "command", command: ["true"] };
  assert.deepEqual(reasons({ ...command, quiet_hours: "07:00-07:00" }), ["notify.0.quiet_hours"]);
  assert.deepEqual(reasons({ ...command, timezone: "Nowhere/Land" }), ["notify.0.timezone"]);
  assert.deepEqual(reasons(command, { answer_links: true }), ["gateway.answer_links"]);
  assert.deepEqual(reasons(command, { public_url: "https://u:p@a.example" }), ["gateway.public_url"]);
  assert.deepEqual(reasons(command, { answer_links: true, public_url: "https://a.example/x" }), []);
  assert.deepEqual(defaultConfig().notify, []);
});

test("somebody can be asked who looks at nothing where a rule tells of approvals and could deliver", () => {
  const of = (events: readonly string[], gateway = {}) => {
    const rule = { name: "a", kind: "ntfy", topic_env: "TOPIC", events };
    const result = validateConfig([{ gateway, notify: [rule] }]);
    assert.ok("config" in result);
    return [tellsOfApprovals, sendsAnswerLinks].map((asks) => asks(result.config, (name) => SECRETS[name]));
  };
  const links = { answer_links: true, public_url: "https://a.example" };
  assert.deepEqual(of(["run_ended"], links), [false, false]);
  assert.deepEqual(of(["approval_waiting"]), [true, false]);
  assert.deepEqual(of(["approval_waiting"], links), [true, true]);
  assert.equal(tellsOfApprovals({ notify: [] }, () => "x"), false);
});
