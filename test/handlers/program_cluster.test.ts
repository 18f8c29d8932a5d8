import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  createGateway,
  createMemoryDatabase,
  type Gateway,
  type GatewayOptions,
  type ProgramProvider,
} from "../../handlers/mod.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const TOKEN = "a-token-from-the-environment";
const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
const say = (delta: string) => ({ type: "text_delta", delta }) as const;

/** Reads a stream until it has a text, or to its end. */
async function readUntil(
  stream: { readonly reader: ReadableStreamDefaultReader<Uint8Array>; text: string },
  text?: string,
) {
  while (text === undefined || !stream.text.includes(text)) {
    const { done, value } = await stream.reader.read();
    if (done) break;
    stream.text += new TextDecoder().decode(value);
  }
  return stream.text.replaceAll(/^:.*\n\n/gm, "");
}

async function startRun(gateway: Gateway): Promise<string> {
  const body = JSON.stringify({ message: "Go", model: "talk/small" });
  const reply = await gateway.request("/v1/runs", { method: "POST", headers, body });
  assert.equal(reply.status, 202);
  return (await reply.json() as { id: string }).id;
}

async function follow(gateway: Gateway, id: string) {
  const { status, body } = await gateway.request(`/v1/runs/${id}/events`, { headers });
  assert.equal(status, 200);
  return { reader: (body ?? assert.fail("no body")).getReader() as ReadableStreamDefaultReader<Uint8Array>, text: "" };
}

test("two gateways in one process share a database, show each other's runs live, and go on for one that closes", async () => {
  await withTemporaryFolder(async (folder) => {
    // The timers of a gateway keep no process alive
    const awake = new AbortController();
    systemClock.sleep(120_000, awake.signal).catch(() => {});
    const database = await createMemoryDatabase();
    const gateways = new Map<string, Gateway>();
    let gate = Promise.withResolvers<void>();
    const talk: ProgramProvider = {
      models: ["small"],
      async *stream(_request, { signal }) {
        yield say("one ");
        const aborted = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
        await Promise.race([gate.promise, aborted]);
        yield say("two");
        yield { type: "finish", finish_reason: "stop", usage: { prompt_tokens: 7, completion_tokens: 3 } };
      },
    };
    const links: string[] = [];
    const open = async (name: string, more: Partial<GatewayOptions> = {}): Promise<Gateway> => {
      const workspace = join(folder, "work");
      mkdirSync(workspace, { recursive: true });
      const gateway = await createGateway({
        dataDir: join(folder, name),
        workspace,
        environment: { POSTERN_TOKEN: TOKEN, CLUSTER_TOKEN: "cluster-token-of-tests-0123456789abcdef" },
        config: {
          agent: { tools: [] },
          cluster: { advertise_url: `https://${name}.test`, token_env: "CLUSTER_TOKEN" },
          gateway: { allowed_hosts: [`${name}.test`] },
        },
        providers: { talk },
        database,
        cluster: {
          fetch(request) {
            const { hostname, pathname } = new URL(request.url);
            links.push(`${hostname} ${pathname}`);
            const other = gateways.get(hostname.replace(".test", ""));
            return other?.fetch(request) ?? Promise.reject(new TypeError("nobody listens there"));
          },
        },
        ...more,
      });
      gateways.set(name, gateway);
      return gateway;
    };
    const logged: string[] = [];
    const a = await open("a", { onLog: ({ message }) => void logged.push(message) });
    const b = await open("b");

    const first = await startRun(a);
    const [own, other] = [await follow(a, first), await follow(b, first)];
    await readUntil(own, "one ");
    // The run says nothing more before it is released: this came live over the link
    await readUntil(other, "one ");
    gate.resolve();
    assert.equal(await readUntil(other), await readUntil(own));
    assert.match(own.text, /two.*"type":"done"/s);
    assert.deepEqual(links, [`a.test /v1/cluster/runs/${first}/events`]);
    assert.deepEqual(logged.filter((message) => message.includes("does nothing")), []);

    gate = Promise.withResolvers();
    const second = await startRun(a);
    const watched = await follow(b, second);
    await readUntil(watched, "one ");
    const closing = a.close();
    gateways.delete("a");
    await closing;
    await readUntil(watched, "turn_restart");
    watched.text = watched.text.slice(watched.text.indexOf("turn_restart"));
    await readUntil(watched, "one ");
    gate.resolve();
    assert.match(await readUntil(watched), /two.*"type":"done"/s);
    await b.close();
    awake.abort();
  });
});

test("a database or a way to others that is none is refused", async () => {
  await withTemporaryFolder(async (folder) => {
    const refusals: readonly (readonly [more: object, code: string])[] = [
      [{ database: {} }, "database_invalid"],
      [{ database: "memory" }, "database_invalid"],
      [{ database: await createMemoryDatabase(), config: POSTGRES }, "database_invalid"],
      [{ cluster: { fetch: "https://a.test" } }, "link_invalid"],
      [{ cluster: "https://a.test" }, "link_invalid"],
      [{ cluster: { fetsh: fetch } }, "unknown_option"],
    ];
    for (const [more, code] of refusals) {
      const options = { dataDir: join(folder, "data"), workspace: folder, ...more } as GatewayOptions;
      await assert.rejects(createGateway(options), { code }, code);
    }
  });
});

const POSTGRES = { storage: { driver: "postgres", url: "postgres://127.0.0.1:1/none" } };
