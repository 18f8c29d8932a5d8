import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { startFakeServer } from "../../../../fixtures/upstream/fake_server.ts";
import { CancelError } from "../../../../lib/base/cancel.ts";
import { withEffectRight } from "../../../../lib/base/effect_right.ts";
import { createGuestAnswers } from "../../../../lib/extensions/plugins/wasm/guest_requests.ts";
import { SecretHandles } from "../../../../lib/extensions/plugins/wasm/secret_handles.ts";
import type { Files } from "../../../../lib/system/files/files.ts";
import { NO_SECRETS } from "../../../support/plugin_bench.ts";
import { createSeededRandom } from "../../../support/seeded_random.ts";
import { withModule } from "../../../support/wasm_bench.ts";
import { answeringWat, EXTISM_WAT } from "../../../support/wat.ts";

/**
 * Returns a module that hands the `text` of its input, up to the first "~", to a function of the host, and answers with the text that the
 * function gives back, as an escaped `data`.
 */
function asking(name: string, module = "extism:host/user", rest = "") {
  return `(module
    (import "${module}" "${name}" (func $ask (param i64 ${rest}) (result i64)))
    ${EXTISM_WAT}
    (data (i32.const 0) "{\\"output\\":\\"\\",\\"data\\":")
    (func $input (result i64) (local $to i64) (local $at i64) (local $byte i32)
      (local.set $at (i64.const 31))
      (local.set $to (call $alloc (i64.const 0)))
      (local.set $byte (i32.const 70000))
      (block $done (loop $next
        (br_if $done (i32.eq (call $input_load (local.get $at)) (i32.const 126)))
        (i32.store8 (local.get $byte) (call $input_load (local.get $at)))
        (if (i32.eq (call $input_load (local.get $at)) (i32.const 92))
          (then (i32.store8 (local.get $byte) (i32.const 34)) (local.set $at (i64.add (local.get $at) (i64.const 1)))))
        (local.set $byte (i32.add (local.get $byte) (i32.const 1)))
        (local.set $at (i64.add (local.get $at) (i64.const 1)))
        (br $next)))
      (call $keep (i32.const 70000) (i32.sub (local.get $byte) (i32.const 70000))))
    (func (export "execute") (result i32) (local $length i32)
      (local.set $length (call $take (call $ask (call $input) ${rest === "" ? "" : "(i64.const 0)"}) (i32.const 20)))
      (i32.store8 (i32.add (local.get $length) (i32.const 20)) (i32.const 125))
      (call $answer (i32.const 0) (i32.add (local.get $length) (i32.const 21)))
      (i32.const 0)))`;
}

const READ = {
  capabilities: { workspace: "read" },
  files: { "a.txt": "one", "b/c.txt": "two", ".env": "KEY=1", "x.bin": "\0" },
} as const;

test("a module reads the workspace as the tools do, and nothing else", () =>
  withModule(asking("workspace_read"), async ({ call, workspace }) => {
    const read = async (request: object) => (await call(`${JSON.stringify(request)}~`)).data as Record<string, unknown>;
    assert.deepEqual(await read({ path: "b/c.txt" }), { content: "two" });
    assert.deepEqual(await read({ path: "x.bin", encoding: "base64" }), { content: "AA==" });
    const refused: readonly (readonly [object, string])[] = [
      [{ path: "none.txt" }, "not_found"],
      [{ path: "../outside/secret.txt" }, "path_outside_root"],
      [{ path: join(workspace.outside, "secret.txt") }, "path_outside_root"],
      [{ path: ".env" }, "path_sensitive"],
      [{ path: "b" }, "not_a_file"],
      [{ path: "x.bin" }, "binary_file"],
      [{ path: "a.txt", mode: 7 }, "invalid_input"],
      [{}, "invalid_input"],
    ];
    for (const [request, code] of refused) {
      const { error } = await read(request) as { readonly error?: { readonly code: string } };
      assert.equal(error?.code, code, JSON.stringify(request));
    }
  }, READ));

test("a module lists the files that it may read", () =>
  withModule(asking("workspace_list"), async ({ call }) => {
    const { data } = await call('{"path":"."}~');
    const entries = [{ path: "a.txt", size: 3 }, { path: "x.bin", size: 1 }, { path: "b/c.txt", size: 3 }];
    assert.deepEqual(data, { entries, truncated: false });
  }, READ));

test("what a module writes is marked, and protected and sensitive names are refused", () =>
  withModule(asking("workspace_write"), async ({ call, workspace, marked }) => {
    const write = async (request: object) =>
      (await call(`${JSON.stringify(request)}~`)).data as Record<string, unknown>;
    assert.deepEqual(await write({ path: "new/d.txt", content: "three" }), { bytes: 5 });
    assert.equal(readFileSync(workspace.path("new", "d.txt"), "utf8"), "three");
    assert.deepEqual(marked, [`${workspace.path("new", "d.txt")} plugin sample`]);
    assert.deepEqual(await write({ path: "a.txt", content: "AAE=", encoding: "base64" }), { bytes: 2 });
    assert.deepEqual([...readFileSync(workspace.path("a.txt"))], [0, 1]);
    for (const path of [".git/config", ".env", "../x"]) {
      const { error } = await write({ path, content: "x" }) as { readonly error?: { readonly code: string } };
      assert.match(String(error?.code), /^path_(protected|sensitive|outside_root)$/, path);
    }
    const { error } = await write({ path: "big", content: "x".repeat(1100) }) as { readonly error?: object };
    assert.match(JSON.stringify(error), /file_too_large.*max_write_bytes/);
  }, {
    capabilities: { workspace: "write" },
    files: { "a.txt": "one" },
    config: { security: { write_file: { max_write_bytes: 1024 } } },
  }));

test("a module reaches the hosts of its manifest by the rules of every request, and no others", async () => {
  const server = await startFakeServer((seen, response) => {
    response.setHeader("x-kind", "test");
    response.end(JSON.stringify({ method: seen.method, path: seen.path, own: seen.headers["x-own"] }));
  });
  const http = asking("http_request", "extism:host/env", "i64");
  const { host } = new URL(server.origin);
  const config = { url_access: { allow_loopback: true } };
  try {
    await withModule(http, async ({ call }) => {
      const { data } = await call(`${JSON.stringify({ url: `${server.origin}/a`, headers: { "x-own": "1" } })}~`);
      assert.deepEqual(data, { method: "GET", path: "/a", own: "1" });
      await assert.rejects(call(`${JSON.stringify({ url: "http://example.com/" })}~`), {
        code: "url_not_allowed",
        message: /Cannot call plugin "sample": .*example\.com.*capabilities of plugin "sample"/,
      });
      await assert.rejects(call('{"url":"file:///etc/passwd"}~'), { code: "url_scheme" });
      await assert.rejects(call('{"url":"http://a/","method":"TRACE"}~'), { code: "invalid_input" });
    }, { capabilities: { hosts: [host] }, config });
    await withModule(http, async ({ call }) => {
      await assert.rejects(call(`${JSON.stringify({ url: server.origin })}~`), { code: "url_private" });
    }, { capabilities: { hosts: [host] } });
  } finally {
    await server.close();
  }
});

test("a request of a module asks for the right of its call, also where another call has opened its thread", async () => {
  const server = await startFakeServer((_seen, response) => response.end("{}"));
  const { host } = new URL(server.origin);
  const config = { url_access: { allow_loopback: true } };
  try {
    await withModule(asking("http_request", "extism:host/env", "i64"), async ({ call }) => {
      const post = () => call(`${JSON.stringify({ url: `${server.origin}/a`, method: "POST" })}~`);
      for (const name of ["first", "second"]) {
        const asked: string[] = [];
        const right = {
          // The call itself may begin, and has lost its right by the time of the request
          mayAct: () => asked.push(name) === 1 ? Promise.resolve() : Promise.reject(new CancelError("shutdown")),
          mayActNow: () => true,
        };
        await withEffectRight({ right }, post).catch(() => {});
        assert.deepEqual([asked, server.requests.length], [[name, name], 0]);
      }
    }, { capabilities: { hosts: [host] }, config });
  } finally {
    await server.close();
  }
});

test("a module asks for its settings by their names, and finds no other", async () => {
  const settings = { days: 3, units: '"metric"' };
  const options = { id: "sample", title: "it", settings, secrets: NO_SECRETS, random: createSeededRandom() };
  await withModule(asking("config_get", "extism:host/env"), async ({ call }) => {
    assert.equal((await call("days~")).data, 3);
    assert.equal((await call("units~")).data, "metric");
    for (const name of ["none", "constructor", "__proto__"]) {
      await assert.rejects(call(`${name}~`), { code: "plugin_answer_invalid" }, name);
    }
  }, { handles: new SecretHandles(options) });
});

test("a module that is initialised before its next call reaches neither network nor workspace", async () => {
  const signal = new AbortController().signal;
  await withModule(answeringWat(""), async ({ config }) => {
    const nothing = () => Promise.reject(new Error("was reached"));
    const answer = createGuestAnswers({
      module: {
        title: "it",
        origin: "it",
        capabilities: { workspace: "read", hosts: ["a.test"], host_functions: [] },
        config,
      },
      call: undefined,
    }, { files: {} as Files, taintedFiles: { mark: nothing, written: nothing }, guardedFetch: nothing });
    const http = await answer({ kind: "http", request: { url: "http://a.test/" }, body: undefined }, signal);
    assert.match(JSON.stringify(http), /refusal.*plugin_failed.*nobody has called it yet/);
    const read = await answer({ kind: "workspace_read", input: { path: "a" } }, signal);
    assert.match(JSON.stringify(read), /plugin_failed.*nobody has called it yet/);
  });
});

test("a request of a call that is cancelled, or takes too long, ends, and the next call works", async () => {
  const stop = new AbortController();
  const server = await startFakeServer((seen, response) => {
    if (seen.path === "/hang") stop.abort();
    else response.end("{}");
  });
  const { host } = new URL(server.origin);
  try {
    await withModule(asking("http_request", "extism:host/env", "i64"), async ({ call }) => {
      await assert.rejects(call(`${JSON.stringify({ url: `${server.origin}/hang` })}~`, stop.signal), {
        name: "CancelError",
      });
      assert.deepEqual((await call(`${JSON.stringify({ url: server.origin })}~`)).data, {});
      // Nobody answers: the time limit ends the call
      await assert.rejects(call(`${JSON.stringify({ url: `${server.origin}/hang` })}~`), { code: "plugin_timeout" });
      assert.deepEqual((await call(`${JSON.stringify({ url: server.origin })}~`)).data, {});
    }, {
      capabilities: { hosts: [host] },
      config: { url_access: { allow_loopback: true } },
      wasm: { timeout_secs: 1 },
    });
  } finally {
    await server.close();
  }
});
