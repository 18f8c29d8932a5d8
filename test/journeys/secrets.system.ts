import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { exchange } from "../support/raw_socket.ts";
import { jsonOf, withWorld } from "../support/world.ts";

const CANARIES = {
  POSTERN_TOKEN: "canary-of-the-environment-token-Kx81",
  PROVIDER_KEY: "sk-canary-of-the-provider-key-Zq27",
  CHANNEL_SECRET: "canary-of-the-channel-secret-Wm93",
} as const;

/** The forms in which a value may slip out. */
function formsOf(secret: string): readonly string[] {
  const bytes = Buffer.from(secret);
  return [secret, bytes.toString("base64").replace(/=+$/, ""), bytes.toString("hex"), encodeURIComponent(secret)];
}

test("no secret shows in a log, an error, the metrics, /openapi.json, an event or the data directory", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream();
    const seen: string[] = [];
    const see = async (reply: Response) => {
      const headers = [...reply.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
      const text = `${reply.status}\n${headers}\n${await reply.text()}`;
      seen.push(text);
      return text;
    };
    const provider = {
      kind: "openai_compatible",
      base_url: upstream.baseUrl,
      model: "upstream-model",
      api_key_env: "PROVIDER_KEY",
      max_retries: 1,
    };
    const config = {
      provider,
      channels: { signed: { kind: "generic", secret_env: "CHANNEL_SECRET" } },
      logging: { level: "debug" },
      gateway: { rate_limit_max: 0 },
    };
    const gateway = await world.gateway({ config, environment: CANARIES });
    const { port } = gateway;
    const token = CANARIES.POSTERN_TOKEN;
    const authorization = `Bearer ${token}`;
    const call = (path: string, init: Parameters<typeof gateway.call>[1] = {}) =>
      gateway.call(path, { ...init, headers: { authorization, ...init?.headers } });
    const body = { messages: [{ role: "user", content: "Hi" }] };
    const ask = async (more = {}) => await see(await call("/v1/chat/completions", { body: { ...body, ...more } }));

    assert.match(await ask(), /Hello from upstream/);
    assert.equal(upstream.requests.at(-1)?.headers["authorization"], `Bearer ${CANARIES.PROVIDER_KEY}`);
    // An upstream that repeats the key it was sent, in all the places it can
    const repeated = {
      error: {
        message: `Incorrect API key ${formsOf(CANARIES.PROVIDER_KEY).join(" ")} in Bearer ${CANARIES.PROVIDER_KEY}`,
        code: CANARIES.PROVIDER_KEY,
        param: `header ${CANARIES.PROVIDER_KEY}`,
      },
    };
    for (const status of [400, 401, 404, 429, 501]) {
      upstream.script({ kind: "status", status, body: repeated });
      await ask();
      await ask({ stream: true });
      await see(await call("/api/chat", { body: { message: "Hi" } }));
    }
    upstream.script({ kind: "raw", body: `data: ${JSON.stringify(repeated)}\n\n` });
    await ask({ stream: true });
    upstream.script({ kind: "raw", body: `<html>${CANARIES.PROVIDER_KEY}</html>`, contentType: "text/html" });
    await ask();
    const socket = await gateway.chat(token);
    socket.send({ type: "hello", events: true });
    upstream.script({ kind: "status", status: 401, body: repeated });
    socket.send("Hi");
    await socket.readReply();
    socket.socket.close();
    seen.push(JSON.stringify(socket.frames));

    // A secret where it does not belong
    for (
      const path of [
        `/health?token=${token}`,
        `/v1/tools/${token}`,
        `/${token}`,
        `/v1/webhook/${CANARIES.CHANNEL_SECRET}`,
        `/ws/chat?ticket=${token}`,
      ]
    ) {
      await see(await call(path));
      await see(await call(path, { method: "POST", body: {} }));
    }
    for (const bad of [`{"message":"${token}"`, `{"${token}":1}`, `{"messages":"${token}"}`, `"${token}"`]) {
      for (const path of ["/v1/chat/completions", "/api/chat", "/v1/webhook/default", "/v1/tokens"]) {
        // The name of an unknown field is told back by contract, to the one who sent it
        const reply = await call(path, { body: bad });
        if (!bad.startsWith(`{"${token}`)) await see(reply);
        else await reply.text();
      }
    }
    seen.push(
      await exchange(
        port,
        `GET /health HTTP/1.1\r\nHost: ${token}\r\nAuthorization: ${authorization}\r\nConnection: close\r\n\r\n`,
      ),
    );
    seen.push(
      await exchange(
        port,
        `GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic ${token}\r\nConnection: close\r\n\r\n`,
      ),
    );
    seen.push(await exchange(port, `BROKEN ${token}\r\n\r\n`));

    // A signature that is right, one that is used twice, and one that is wrong
    const message = JSON.stringify({ message: "Hi" });
    const time = Math.floor(systemClock.now() / 1000);
    const signature = createHmac("sha256", CANARIES.CHANNEL_SECRET).update(`${time}.${message}`).digest("hex");
    const statuses: number[] = [];
    for (
      const given of [
        `t=${time},sha256=${signature}`,
        `t=${time},sha256=${signature}`,
        `t=${time},sha256=00`,
        CANARIES.CHANNEL_SECRET,
      ]
    ) {
      const reply = await call("/v1/webhook/signed", { body: message, headers: { "x-postern-signature": given } });
      statuses.push(reply.status);
      await see(reply);
    }
    assert.equal(statuses[0], 202);
    assert.ok(statuses.slice(1).every((status) => status === 401 || status === 403), String(statuses));
    for (const path of ["/metrics", "/openapi.json", "/", "/health", "/v1/tools", "/v1/models", "/v1/tokens"]) {
      await see(await call(path));
    }

    const made = (await jsonOf(call("/v1/tokens", { body: {} }))).token as string;
    await see(await call("/v1/tokens", { headers: { authorization: `Bearer ${made}` } }));
    await see(await call("/v1/tokens"));
    seen.push(JSON.stringify(gateway.log));
    for (const name of readdirSync(gateway.dataDir)) {
      const path = join(gateway.dataDir, name);
      if (statSync(path).isFile()) seen.push(readFileSync(path, "latin1"));
    }
    const all = seen.join("\n");
    for (const [name, secret] of [...Object.entries(CANARIES), ["a token that was made", made]] as const) {
      for (const form of formsOf(secret)) {
        const at = all.indexOf(form);
        assert.equal(at, -1, `${name} shows: ${all.slice(Math.max(0, at - 300), at + 60)}`);
      }
    }
  }));
