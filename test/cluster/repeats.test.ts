import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { describe, test } from "node:test";
import { toTools } from "../../lib/tools/made_tool.ts";
import { ProviderError } from "../../lib/base/errors.ts";
import { defineProgramTool } from "../../lib/tools/program_tool.ts";
import type { Run } from "../../lib/base/records/run.ts";
import { awayError, LEASE_MS } from "../support/clustered.ts";
import { FollowedStream, type LinkedGateway, TALK, withCluster } from "../support/linked_gateways.ts";

const keyed = (path: string, body: unknown, key = "k1"): [string, RequestInit] => [path, {
  method: "POST",
  // A token of its own at each gateway is another scope of the key, so all use one that they share
  headers: { "content-type": "application/json", "idempotency-key": key, authorization: "Bearer shared" },
  body: JSON.stringify(body),
}];

/** Settings of gateways with a tool that has an effect; `onWrite` is called at each call. */
function withWriteTool(onWrite: () => unknown) {
  const tool = defineProgramTool({
    name: "write",
    description: "Writes.",
    access: "state",
    inputSchema: { type: "object", properties: {}, additionalProperties: false },
    async execute() {
      await onWrite();
      return "written";
    },
  });
  return { tools: toTools([tool], () => false), config: { autonomy: { level: "full" } } };
}

describe("a request that is repeated at another gateway under its Idempotency-Key", () => {
  const environment = { POSTERN_TOKEN: "shared" };

  test("follows the run of a streamed completion, byte for byte, and gets its stored reply later", async () => {
    await withCluster(async ({ start, pass, passUntil }) => {
      const a = await start("a", { environment, script: TALK });
      const b = await start("b", { environment });
      const c = await start("c", { environment, token: undefined, advertises: false });
      await pass(2 * LEASE_MS);
      const body = { messages: [{ role: "user", content: "Go" }], stream: true };
      const first = new FollowedStream(a.send(...keyed("/v1/chat/completions", body)));
      await passUntil(() => first.text.includes("one"), "the first client is told something");
      const repeats = [b, c].map((gateway) => new FollowedStream(gateway.send(...keyed("/v1/chat/completions", body))));
      await passUntil(() => first.text.includes("three"), "the first client is told the first turn");
      assert.ok(repeats[0]?.text.includes("two"), "the repeat is live where there is a link");
      await passUntil(() => first.isEnded && repeats.every((stream) => stream.isEnded), "all end");
      assert.match(first.text, /six.*\[DONE\]/s);
      for (const repeat of repeats) assert.equal(repeat.events, first.events);
      assert.deepEqual(repeats.map(({ comments }) => comments.length > 0), [false, true], "told where it is not live");
      await pass(2_000);
      for (const gateway of [a, b, c]) {
        const again = await gateway.send(...keyed("/v1/chat/completions", body));
        assert.equal(again.headers.get("idempotency-replayed"), "true");
        assert.equal((await again.text()).replaceAll(/^:.*\n\n/gm, ""), first.events);
      }
      const other = await b.send(...keyed("/v1/chat/completions", { ...body, stream: false }));
      assert.equal((await other.json() as { error: { code: string } }).error.code, "idempotency_conflict");
    });
  });

  test("is one run, also when both gateways get the request in the same moment", async () => {
    await withCluster(async ({ start, pass, passUntil }) => {
      const a = await start("a", { environment, script: () => ({ text: "Yes", delayMs: 300 }) });
      const b = await start("b", { environment, script: () => ({ text: "Yes", delayMs: 300 }) });
      await pass(2 * LEASE_MS);
      const requests = [
        ["/v1/runs", { message: "Go" }],
        ["/api/chat", { message: "Go" }],
        ["/v1/chat/completions", { messages: [{ role: "user", content: "Go" }] }],
      ] as const;
      for (const [at, [path, body]] of requests.entries()) {
        const replies: Response[] = [];
        for (const gateway of [a, b, a, b]) {
          void gateway.send(...keyed(path, body, `key-${at}`)).then((reply) => void replies.push(reply));
        }
        await passUntil(() => replies.length === 4, `${path}: all are answered`);
        const texts = await Promise.all(replies.map((reply) => reply.text()));
        assert.deepEqual(replies.map(({ status }) => status), Array(4).fill(path === "/v1/runs" ? 202 : 200), texts[0]);
        assert.equal(new Set(texts).size, 1, `${path}: ${[...new Set(texts)].join("\n")}`);
      }
      const { runs } = await a.services.agent?.runs.list({ limit: 10 }) ?? { runs: [] };
      assert.equal(runs.length, requests.length, "no request has two runs");
    });
  });

  test("waits for a request without a run while its gateway lives, and is 409 once that is gone", async () => {
    await withCluster(async ({ start, network, pass, passUntil }) => {
      let held = Promise.withResolvers<void>();
      let calls = 0;
      const settings = {
        environment,
        ...withWriteTool(() => {
          calls++;
          return held.promise;
        }),
      };
      const [a, b] = [await start("a", settings), await start("b", settings)];
      await pass(2 * LEASE_MS);
      const call = (gateway: LinkedGateway, key: string) => {
        const asked = { reply: undefined as Response | undefined };
        const sent = gateway.send(...keyed("/v1/tools/write/call", { input: {} }, key));
        void sent.then((reply) => void (asked.reply = reply));
        return asked;
      };
      const [first, repeat] = [call(a, "k1"), call(b, "k1")];
      await passUntil(() => calls === 1, "the tool is called");
      await pass(5_000);
      assert.deepEqual([calls, repeat.reply], [1, undefined], "the repeat waits");
      held.resolve();
      await passUntil(() => first.reply !== undefined && repeat.reply !== undefined, "both are answered");
      assert.equal(await repeat.reply?.text(), await first.reply?.text());
      assert.equal(repeat.reply?.headers.get("idempotency-replayed"), "true");

      held = Promise.withResolvers<void>();
      const lost = call(a, "k2");
      await passUntil(() => calls === 2, "the tool is called again");
      const late = call(b, "k2");
      await pass(1_000);
      a.database.isCut = true;
      network.remove("a");
      await passUntil(() => late.reply !== undefined, "the repeat is answered once the gateway is gone");
      assert.equal(late.reply?.status, 409);
      assert.match(await late.reply?.text() ?? "", /whether .* took effect is unknown/);
      assert.equal(calls, 2, "nothing is done again");
      held.resolve();
      await passUntil(() => lost.reply !== undefined, "the first call ends");
    });
  });

  test("is answered once the database is back, where the end of the first one could not be recorded before", async () => {
    await withCluster(async ({ start, pass, passUntil }) => {
      let calls = 0;
      let goesAway = false;
      const settings = {
        environment,
        ...withWriteTool(() => {
          calls++;
          a.database.isCut = goesAway;
        }),
      };
      const a = await start("a", settings);
      const b = await start("b", settings);
      await pass(2 * LEASE_MS);
      const call = async (gateway: LinkedGateway, key: string) => {
        let reply: Response | undefined;
        void gateway.send(...keyed("/v1/tools/write/call", { input: {} }, key)).then((got) => reply = got);
        await passUntil(() => reply !== undefined, `${key} is answered`);
        const text = await reply?.text() ?? "";
        return { status: reply?.status, text, isReplayed: reply?.headers.has("idempotency-replayed") };
      };
      const backAgain = async () => {
        a.database.isCut = false;
        a.database.onBatch = (_, make) => make();
        await pass(2_000);
      };

      a.database.onBatch = async (writes, make) => {
        const isMade = await make();
        if (JSON.stringify(writes).includes('"idempotent_replies"')) a.database.isCut = true;
        return isMade;
      };
      const refused = await call(a, "k1");
      assert.equal(refused.status, 503, refused.text);
      assert.equal((await call(a, "k1")).status, 503, "its claim is still there");
      await backAgain();
      const done = await call(b, "k1");
      assert.deepEqual([done.status, done.isReplayed, calls], [200, false, 1], done.text);

      goesAway = true;
      const first = await call(a, "k2");
      assert.deepEqual([first.status, calls], [200, 2], first.text);
      await backAgain();
      for (const gateway of [b, a]) {
        const again = await call(gateway, "k2");
        assert.deepEqual([again.text, again.isReplayed, calls], [first.text, true, 2]);
      }
    });
  });

  const requests = [
    // The first one is answered by its own gateway, which is back before any repeat
    ["/v1/chat/completions", { messages: [{ role: "user", content: "Go" }] }, "ab"],
    ["/v1/webhook/default?wait=1", { message: "Go" }, "bba"],
  ] as const;
  for (const [path, body, repeats] of requests) {
    test(`${path} begins no second run where the first one had an effect at another gateway before it failed`, async () => {
      await withCluster(async ({ start, pass, passUntil }) => {
        let calls = 0;
        const settings = { environment, ...withWriteTool(() => calls++) };
        const broken = new ProviderError("provider_error", "the model is broken", { provider: "p" });
        const a = await start("a", { ...settings, script: () => ({ hang: "before" }) });
        await pass(2 * LEASE_MS);
        const answers: (readonly [status: number, retry: string | null])[] = [];
        const send = (gateway: LinkedGateway) =>
          void gateway.send(...keyed(path, body)).then(({ status, headers }) => {
            answers.push([status, headers.get("x-should-retry")]);
          });
        send(a);
        await pass(200);
        const script = (_: unknown, turn: number) =>
          turn === 0 ? { toolCalls: [{ name: "write" }] } : { errorBefore: broken };
        const b = await start("b", { ...settings, script });
        await pass(2 * LEASE_MS);
        a.database.isCut = true;
        await passUntil(() => calls === 1, "the other gateway takes the run over");
        await pass(1_000);
        for (const name of repeats) {
          if (name === "a") a.database.isCut = false;
          await pass(2_000);
          const { length } = answers;
          send(name === "a" ? a : b);
          await passUntil(() => answers.length > length, "the repeat is answered");
        }
        assert.deepEqual([answers, calls], [Array(1 + repeats.length).fill([502, "false"]), 1]);
        assert.equal((await b.services.agent?.runs.list({ limit: 10 }))?.runs.length, 1);
      });
    });
  }

  test("begins another run where the first one failed without an effect, a call that was not made included", async () => {
    const broken = { errorBefore: new ProviderError("provider_error", "the model is broken", { provider: "p" }) };
    const asked = { messages: [{ role: "user", content: "Go" }] };
    const cases = [
      ["/api/chat", { message: "Go" }, [broken]],
      ["/v1/chat/completions", asked, [{ toolCalls: [{ name: "there_is_no_such_tool" }] }, broken]],
    ] as const;
    for (const [path, body, turns] of cases) {
      await withCluster(async ({ start, pass, passUntil }) => {
        const a = await start("a", { environment, script: (_, turn) => turns[turn] ?? { text: "Yes" } });
        await pass(2 * LEASE_MS);
        const statuses: number[] = [];
        for (const count of [1, 2]) {
          void a.send(...keyed(path, body)).then(({ status }) => statuses.push(status));
          await passUntil(() => statuses.length === count, "it is answered");
        }
        assert.deepEqual(statuses, [502, 200], path);
      });
    }
  });

  test("begins no other run where a person cancelled the first one", async () => {
    await withCluster(async ({ start, pass, passUntil }) => {
      const a = await start("a", { environment, script: () => ({ hang: "before" }) });
      await pass(2 * LEASE_MS);
      const request = keyed("/v1/chat/completions", { messages: [{ role: "user", content: "Go" }] });
      const texts: string[] = [];
      const send = () =>
        void a.send(...request).then(async (reply) => texts.push(`${reply.status} ${await reply.text()}`));
      send();
      const runs = async () => (await a.services.agent?.runs.list({ limit: 10 }))?.runs ?? [];
      let run: Run | undefined;
      await passUntil(() => {
        void runs().then(([first]) => run = first);
        return run?.status === "running";
      }, "the run begins");
      await a.services.agent?.runs.cancel(run?.id ?? "", "cancelled");
      await passUntil(() => texts.length === 1, "the first client is answered");
      send();
      await passUntil(() => texts.length === 2, "the repeat is answered");
      assert.match(texts[0] ?? "", /^409 /);
      assert.equal(texts[1], texts[0]);
      assert.equal((await runs()).length, 1);
    });
  });

  test("is the run of a signed message, whatever the gateway that took it", async () => {
    await withCluster(async ({ start, pass, passUntil }) => {
      const config = { channels: { hook: { secret_env: "HOOK_SECRET" } } };
      const settings = {
        environment: { ...environment, HOOK_SECRET: "s3cret" },
        config,
        script: () => ({ text: "Yes" }),
      };
      const [a, b] = [await start("a", settings), await start("b", settings)];
      await pass(2 * LEASE_MS);
      const body = { message: "Go", message_id: "m1" };
      const [path, init] = keyed("/v1/webhook/hook", body);
      const time = Math.floor(a.services.clock.now() / 1_000);
      const hex = createHmac("sha256", "s3cret").update(`${time}.${JSON.stringify(body)}`).digest("hex");
      const headers = { ...init.headers, "x-postern-signature": `t=${time},sha256=${hex}` };
      const replies: unknown[] = [];
      for (const gateway of [a, b, a, b]) {
        void gateway.send(path, { ...init, headers }).then(async (reply) =>
          replies.push([reply.status, await reply.json()])
        );
      }
      await passUntil(() => replies.length === 4, "all are answered");
      const { runs } = await a.services.agent?.runs.list({ limit: 10 }) ?? { runs: [] };
      assert.equal(runs.length, 1);
      for (const reply of replies) {
        assert.deepEqual(reply, [202, { accepted: true, channel: "hook", run_id: runs[0]?.id }]);
      }
    });
  });

  test("calls a tool where the answer to the claim of the first request was lost, which called nothing", async () => {
    for (const isCommitted of [true, false]) {
      await withCluster(async ({ start, pass, passUntil }) => {
        let calls = 0;
        const settings = { environment, ...withWriteTool(() => calls++) };
        const [a, b] = [await start("a", settings), await start("b", settings)];
        await pass(2 * LEASE_MS);
        a.database.onBatch = async (writes, make) => {
          if (!JSON.stringify(writes).includes('"idempotent_replies"')) return await make();
          if (isCommitted) await make();
          a.database.onBatch = (_, make) => make();
          throw awayError();
        };
        const call = async (gateway: LinkedGateway) => {
          let reply: Response | undefined;
          void gateway.send(...keyed("/v1/tools/write/call", { input: {} })).then((got) => reply = got);
          await passUntil(() => reply !== undefined, "it is answered");
          return reply?.status;
        };
        assert.deepEqual([await call(a), calls], [503, 0]);
        await pass(2_000);
        assert.deepEqual([await call(b), calls], [200, 1]);
        assert.deepEqual([await call(a), calls], [200, 1]);
      });
    }
  });

  for (const fate of ["completed", "failed"] as const) {
    for (const [path, body] of [["/v1/runs", { message: "Go" }], ["/api/chat", { message: "Go" }]] as const) {
      test(`${path} is the same run, where the answer to its acceptance was lost and it has ${fate} elsewhere meanwhile`, async () => {
        await withCluster(async ({ start, pass, passUntil }) => {
          const script = () =>
            fate === "completed" ? { text: "Yes" } : { errorBefore: new Error("the model is broken") };
          const [a, b] = [await start("a", { environment, script }), await start("b", { environment, script })];
          await pass(2 * LEASE_MS);
          a.database.onBatch = async (writes, make) => {
            const isMade = await make();
            if (!writes.some((write) => "collection" in write && write.collection === "run_inputs")) return isMade;
            a.database.isCut = true;
            throw awayError();
          };
          const send = async (gateway: LinkedGateway) => {
            let reply: Response | undefined;
            void gateway.send(...keyed(path, body)).then((got) => reply = got);
            await passUntil(() => reply !== undefined, "the request is answered");
            return { status: reply?.status, text: await reply?.text() ?? "" };
          };
          assert.equal((await send(a)).status, 503);
          const runs = async () => (await b.services.agent?.runs.list({ limit: 10 }))?.runs ?? [];
          let found: readonly Run[] = [];
          await passUntil(() => {
            void runs().then((now) => found = now);
            return found[0]?.status === fate;
          }, "the other gateway ends the run");
          a.database.onBatch = (_, make) => make();
          a.database.isCut = false;
          await pass(3_000);
          const again = await send(b);
          if (path === "/v1/runs") assert.equal(JSON.parse(again.text).id, found[0]?.id);
          else assert.match(again.text, fate === "completed" ? /"Yes"/ : /the model is broken|internal_error/);
          assert.equal((await runs()).length, 1);
        });
      });
    }
  }
});
