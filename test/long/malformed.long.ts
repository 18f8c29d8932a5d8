import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { openRawSocket } from "../support/raw_socket.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const REQUESTS = 10_000;
const CLIENTS = 16;
const SEED = Number(process.env["POSTERN_TEST_SEED"] ?? 20_26);

const GOOD: readonly (readonly [path: string, body: string])[] = [
  ["/v1/chat/completions", '{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true,"temperature":0.5}'],
  [
    "/v1/chat/completions",
    '{"messages":[{"role":"system","content":"x"},{"role":"user","content":[{"type":"text","text":"Hi"}]}]}',
  ],
  ["/api/chat", '{"message":"Hi","context":"x","conversation_id":"c"}'],
  ["/webhook", '{"message":"Hi"}'],
  ["/v1/webhook/default?wait=1", '{"text":"Hi","sender":"s","message_id":"m"}'],
  ["/v1/tools/glob_search/call", '{"input":{"pattern":"*"},"approved":true}'],
  ["/v1/ping", '{"message":"x"}'],
  ["/v1/tokens", '{"scopes":["chat"],"label":"x","ttl_seconds":60}'],
];

/** Numbers that repeat with the seed. */
function dice(seed: number) {
  const random = createSeededRandom(seed);
  const below = (limit: number) => random.bytes(4).reduce((sum, byte) => sum * 256 + byte, 0) % limit;
  const pick = <T>(items: readonly T[]): T => items[below(items.length)] as T; // it is below the length
  return { below, pick };
}

const SPLICES = [
  "{",
  "}",
  "[",
  "]",
  '"',
  "\\",
  ",",
  ":",
  "null",
  "-1",
  "1e999",
  "\\ud800",
  "\u0000",
  "é",
  "__proto__",
  "\r\n",
  "x".repeat(300),
];

/** Makes a request with a few faults: in the bytes of its body, its headers, its target, or its framing. */
function malformed({ below, pick }: ReturnType<typeof dice>, { token }: RunningGateway): Uint8Array {
  let [target, body] = pick(GOOD);
  let method = "POST";
  let length: string | undefined;
  const headers: Record<string, string> = {
    Host: "127.0.0.1",
    Connection: "close",
    Authorization: `Bearer ${token}`,
    "Content-Type": "application/json",
  };
  for (let faults = 1 + below(3); faults > 0; faults--) {
    const at = below(body.length + 1);
    switch (below(11)) {
      case 0:
        body = body.slice(0, at);
        break;
      case 1:
      case 2:
        body = body.slice(0, at) + pick(SPLICES) + body.slice(at + below(5));
        break;
      case 3:
        body = body.slice(0, at) + String.fromCharCode(below(256)) + body.slice(at + 1);
        break;
      case 4:
        body = body.replace(
          /"(?:Hi|x|m|c|s|user|text)"|true|0\.5|60/g,
          (value) => below(2) ? value : pick(["null", "7", "[]", "{}", '""', "true"]),
        );
        break;
      case 5:
        method = pick(["GET", "PUT", "post", "DELETE", "OPTIONS", "TRACE", "X", "", "PO ST"]);
        break;
      case 6:
        target = pick([
          `/${target}`,
          `${target}%`,
          `${target}%ff`,
          target.toUpperCase(),
          `${target}/..`,
          `http://evil.example${target}`,
          "*",
          "",
          `${target} x`,
          `${target}?${"a".repeat(below(20_000))}`,
        ]);
        break;
      case 7:
        headers[
          pick([
            "Authorization",
            "Content-Type",
            "Host",
            "Origin",
            "Idempotency-Key",
            "X-Postern-Tools",
            "Expect",
            "Upgrade",
            "X-Request-Id",
            "Sec-Fetch-Site",
            "Content-Encoding",
          ])
        ] = pick([
          "",
          "x",
          "null",
          "text/plain",
          "cross-site",
          "websocket",
          "100-continue",
          "gzip",
          "\u00ff\u00fe",
          "a".repeat(below(20_000)),
        ]);
        break;
      case 8:
        length = pick(["-1", "0", "1", "99999999", "1e3", "0x10", "", " ", "5, 5", "184467440737095516150"]);
        break;
      case 9:
        headers["Transfer-Encoding"] = pick(["chunked", "gzip", "chunked, chunked", "x", ""]);
        break;
      case 10:
        headers[pick(["Bad Header", "", "X:Y", "X-\u0001"])] = "1";
        break;
    }
  }
  headers["Content-Length"] = length ?? String(body.length);
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join("");
  return Buffer.from(`${method} ${target} HTTP/1.1\r\n${lines}\r\n${body}`, "latin1");
}

test(`10,000 random malformed requests (seed ${SEED}): never a failure, never silence without an end, the process alive`, async () => {
  const config = { gateway: { rate_limit_max: 0, request_timeout_secs: 1 }, logging: { level: "warn" } };
  await withRunningGateway({ config, script: () => "ok" }, async (gateway) => {
    const statuses = new Map<number, number>();
    let sent = 0;
    const client = async () => {
      while (sent < REQUESTS) {
        const bytes = malformed(dice(SEED + sent++), gateway);
        const raw = await openRawSocket(gateway.port);
        raw.write(bytes);
        // Framing that promises more bytes than come is the server's to wait for; the client gives up first
        const patience = systemClock.after(150, () => raw.destroy());
        const text = await raw.closed();
        patience.clear();
        raw.destroy();
        const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        // 501 is for a transfer coding that is not known
        assert.ok(status < 500 || status === 501, `${Buffer.from(bytes).toString("latin1")}\n\n${text}`);
        if (status >= 400 && text.includes("\r\n\r\n{")) assert.match(text, /\{"error":\{"message":"[A-Z]/);
        (gateway.provider.requests as unknown[]).length = 0;
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    assert.ok((statuses.get(400) ?? 0) > REQUESTS / 10, JSON.stringify([...statuses]));
    assert.deepEqual(gateway.log.filter(({ level }) => level === "error"), []);
    const reply = await gateway.call("/v1/chat/completions", { body: { messages: [{ role: "user", content: "Hi" }] } });
    assert.match(await reply.text(), /"content":"ok"/);
  });
});
