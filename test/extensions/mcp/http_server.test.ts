import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { McpError } from "../../../lib/extensions/mcp/mcp_error.ts";
import { type McpBench, NEVER, withMcp } from "../../support/mcp_bench.ts";
import { createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { configOf, withRunningGateway } from "../../support/running_gateway.ts";
import { until } from "../../support/until.ts";

type Handler = (request: IncomingMessage, message: Message, response: ServerResponse) => void;
interface Message {
  readonly id?: number | string;
  readonly method?: string;
  readonly params?: { readonly name?: string };
}

/** Runs `use` with an HTTP server that gives each message to a handler, and notes the requests. `endSession` answers DELETE. */
async function withHttp(
  handle: Handler,
  use: (url: string, requests: readonly IncomingMessage[]) => Promise<void>,
  endSession: (response: ServerResponse) => void = (response) => void response.writeHead(405).end(),
): Promise<void> {
  const requests: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    requests.push(request);
    let text = "";
    request.setEncoding("utf8").on("data", (part: string) => text += part);
    request.on("end", () => {
      if (request.method === "DELETE") return endSession(response);
      if (request.method !== "POST") return void response.writeHead(405).end();
      handle(request, JSON.parse(text) as Message, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`, requests);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

const json = (response: ServerResponse, id: unknown, result: object, headers: Readonly<Record<string, string>> = {}) =>
  void response.writeHead(200, { "content-type": "application/json", ...headers }).end(
    JSON.stringify({ jsonrpc: "2.0", id, result }),
  );

/** Answers as a server of the old era does; `call` answers a call. */
const legacy = (call: (id: unknown, response: ServerResponse) => void): Handler => (_request, message, response) => {
  const { id, method } = message;
  switch (method) {
    case "initialize": {
      const result = {
        protocolVersion: "2025-11-25",
        capabilities: { tools: {} },
        serverInfo: { name: "h", version: "1" },
      };
      return json(response, id, result, response.hasHeader("mcp-session-id") ? {} : { "mcp-session-id": "s-1" });
    }
    case "tools/list":
      return json(response, id, { tools: [{ name: "echo", inputSchema: { type: "object" } }] });
    case "tools/call":
      return call(id, response);
    default:
      if (id === undefined) return void response.writeHead(202).end();
      return void response.writeHead(400, { "content-type": "application/json" }).end(
        JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32601, message: "Method not found" } }),
      );
  }
};

const servers = (url: string, more: object = {}) => ({ servers: { one: { url, ...more } } });
const call = { name: "echo", arguments: {} };
const fails = async (work: Promise<unknown>): Promise<McpError> => {
  const error = await work.then(() => undefined, (reason: unknown) => reason);
  assert.ok(error instanceof McpError, String(error));
  return error;
};

describe("a server by url", () => {
  test("it is reached through guarded fetch with its headers, in the new era, and answers", () =>
    withRunningGateway({ files: { "a.txt": "hello" } }, (gateway) =>
      withMcp(
        servers(`${gateway.url}/mcp`, { headers: { authorization: `Bearer ${gateway.token}` } }),
        async ({ server }) => {
          const tools = await server().freshTools(NEVER);
          assert.ok(tools.some(({ name }) => name === "read_file"));
          assert.equal(server().status().era, "modern");
          const { content } = await server().request("tools/call", {
            name: "read_file",
            arguments: { path: "a.txt" },
          }, { signal: NEVER });
          assert.match(JSON.stringify(content), /hello/);
        },
      )));

  test("one of the old era gets a session, which ends with DELETE", () =>
    withHttp(
      legacy((id, response) => json(response, id, { content: [{ type: "text", text: "yes" }] })),
      (url, requests) =>
        withMcp(servers(url, { headers: { "x-key": "k" } }), async ({ server }) => {
          const { content } = await server().request("tools/call", call, { signal: NEVER });
          assert.match(JSON.stringify(content), /yes/);
          assert.equal(server().status().era, "legacy");
          await server().close();
          assert.ok(requests.every(({ headers }) => headers["x-key"] === "k"));
          assert.deepEqual(
            requests.filter(({ method }) => method === "DELETE").map(({ headers }) => headers["mcp-session-id"]),
            [
              "s-1",
            ],
          );
        }),
    ));

  test("close() waits for a session that ends already, since nobody used it", async () => {
    const clock = createFakeClock();
    const ending = Promise.withResolvers<ServerResponse>();
    const order: string[] = [];
    await withHttp(legacy(() => {}), (url) =>
      withMcp(servers(url), async ({ server }) => {
        await server().freshTools(NEVER);
        await clock.advance(300_000);
        const response = await ending.promise;
        const closing = server().close().then(() => void order.push("closed"));
        await clock.advance(0);
        order.push("answered");
        response.writeHead(200).end();
        await closing;
        assert.deepEqual(order, ["answered", "closed"]);
      }, { clock }), ending.resolve);
  });

  test("headers with a key are not sent to where a redirect leads", () =>
    withHttp(
      (_request, _message, response) => void response.writeHead(200).end(),
      (other, strayed) =>
        withHttp((_request, _message, response) => void response.writeHead(307, { location: other }).end(), (url) =>
          withMcp(servers(url, { headers: { authorization: "Bearer key" } }), async ({ server }) => {
            const { code, message } = await fails(server().freshTools(NEVER));
            assert.equal(code, "mcp_unavailable");
            assert.match(message, /not followed/);
            assert.equal(strayed.length, 0);
          })),
    ));

  const broken:
    readonly (readonly [what: string, answer: (id: unknown, response: ServerResponse) => void, code: string])[] = [
      ["a stream that ends without an answer", (_id, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" }).end(": nothing\n\n");
      }, "mcp_lost"],
      ["an event of 11 MB", (_id, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" }).end(`data: ${"x".repeat(11 * 1_048_576)}\n\n`);
      }, "mcp_lost"],
      ["a body of 11 MB", (_id, response) => {
        response.writeHead(200, { "content-type": "application/json" }).end("x".repeat(11 * 1_048_576));
      }, "mcp_invalid"],
      ["a body that is no JSON", (_id, response) => {
        response.writeHead(200, { "content-type": "application/json" }).end("<html>");
      }, "mcp_invalid"],
      [
        "a page",
        (_id, response) => void response.writeHead(200, { "content-type": "text/html" }).end("<html>"),
        "mcp_invalid",
      ],
      ["a status", (_id, response) => void response.writeHead(500).end(), "mcp_refused"],
      ["a session that is gone", (_id, response) => void response.writeHead(404).end(), "mcp_lost"],
      ["a wish for a sign-in", (_id, response) => void response.writeHead(401).end(), "mcp_unavailable"],
      ["a connection that breaks", (_id, response) => void response.destroy(), "mcp_lost"],
      ["a body that breaks", (_id, response) => {
        response.writeHead(200, { "content-type": "application/json", "content-length": "1000" }).write('{"jsonrpc"');
        setImmediate(() => response.destroy());
      }, "mcp_lost"],
    ];
  for (const [what, answer, code] of broken) {
    test(`it fails at once for ${what}`, () =>
      withHttp(legacy(answer), (url) =>
        withMcp(servers(url), async ({ server }) => {
          const error = await fails(server().request("tools/call", call, { signal: NEVER }));
          assert.equal(error.code, code, error.message);
        })));
  }

  describe("a server that was restarted", () => {
    /** Answers as a server of the old era that answers a session from before `restart()` with a status; `null` breaks the connection. */
    const restarting = (status: number | null, call: Parameters<typeof legacy>[0] = DONE) => {
      let run = 1;
      const sessions: unknown[] = [];
      const good = legacy((id, response) => {
        sessions.push(`s-${run}`);
        call(id, response);
      });
      const handle: Handler = (request, message, response) => {
        const { "mcp-session-id": session } = request.headers;
        if (message.method === "initialize") response.setHeader("mcp-session-id", `s-${run}`);
        else if (session !== undefined && session !== `s-${run}`) {
          return status === null ? void response.destroy() : void response.writeHead(status).end("No valid session ID");
        }
        good(request, message, response);
      };
      return { handle, restart: () => void run++, sessions };
    };
    const DONE = (id: unknown, response: ServerResponse) =>
      json(response, id, { content: [{ type: "text", text: "done" }] });
    const withTools = (
      handle: Handler,
      use: (
        call: () => ReturnType<ToolBench["call"]>,
        bench: McpBench,
        requests: readonly IncomingMessage[],
      ) => Promise<void>,
    ) =>
      withHttp(handle, (url, requests) =>
        withMcp(servers(url), async (bench) => {
          await bench.server().freshTools(NEVER);
          const tools = createToolBench({
            root: join(bench.folder, "workspace"),
            foreign: () => bench.servers.tools(),
          });
          const approver = () => Promise.resolve({ decision: "approve", reason: "" } as const);
          await use(() => tools.call("mcp__one__echo", {}, { approver }), bench, requests);
        }));

    for (const status of [404, 400, 401, 403, 503]) {
      test(`answers a call once after ${status}, over a new session`, () => {
        const { handle, restart, sessions } = restarting(status);
        return withTools(handle, async (call, { server }) => {
          for (const session of ["s-1", "s-2", "s-3"]) {
            const { result, isUnknown } = await call();
            assert.deepEqual([result.output, result.isError, isUnknown], ["done", false, undefined]);
            assert.equal(sessions.at(-1), session);
            assert.equal(server().status().state, "ready");
            restart();
          }
          assert.equal(sessions.length, 3, "each call was made once");
        });
      });
    }

    for (const status of [500, 502, 504]) {
      test(`is not asked again after ${status}, which may come after the effect, but the next call has a new session`, () => {
        const { handle, restart, sessions } = restarting(status);
        return withTools(handle, async (call, { server }) => {
          await call();
          restart();
          const { result } = await call();
          assert.match(result.output, new RegExp(`it answers with the status ${status}`));
          assert.equal(server().status().state, "failed");
          assert.equal((await call()).result.output, "done");
          assert.deepEqual(sessions, ["s-1", "s-2"]);
        });
      });
    }

    for (
      const [what, more, sessions] of [
        ["that the server calls read-only", { annotations: { readOnlyHint: true } }, ["s-1", "s-2"]],
        ["with retry_lost_calls", { always: true }, ["s-1", "s-2"]],
        ["that may have an effect", {}, ["s-1"]],
      ] as const
    ) {
      test(`answers a call ${what} ${sessions.length === 2 ? "once more" : "never again"} after the connection broke`, () => {
        const { handle, restart, sessions: asked } = restarting(null);
        const { annotations } = more as { readonly annotations?: object };
        const listing: Handler = (request, message, response) =>
          message.method === "tools/list" && annotations !== undefined
            ? json(response, message.id, { tools: [{ name: "echo", inputSchema: { type: "object" }, annotations }] })
            : handle(request, message, response);
        return withTools(listing, async (call, bench) => {
          if ("always" in more) {
            const mcp = { enabled: true, allowed_servers: ["one"], retry_lost_calls: "always" };
            bench.config = { ...bench.config, security: configOf({ security: { mcp } }).security };
          }
          await call();
          restart();
          assert.equal((await call()).isUnknown, sessions.length === 2 ? undefined : true);
          assert.deepEqual(asked, sessions);
        });
      });
    }

    test("of which the answer is not known has another session for the next call", () => {
      const { handle, restart, sessions } = restarting(null);
      return withTools(handle, async (call, { server }) => {
        await call();
        restart();
        assert.equal((await call()).isUnknown, true);
        assert.equal(server().status().state, "failed");
        assert.equal((await call()).result.output, "done");
        assert.deepEqual(sessions, ["s-1", "s-2"]);
      });
    });

    for (const status of [404, 400, 500]) {
      test(`and answers every call with ${status} is asked twice at most, and is not ready`, () => {
        const { handle, sessions } = restarting(null, (_id, response) => void response.writeHead(status).end());
        return withTools(handle, async (call, { server }) => {
          const { result, isUnknown } = await call();
          assert.deepEqual([result.isError, isUnknown], [true, undefined]);
          assert.ok(sessions.length <= 2, `${sessions.length} calls`);
          assert.equal(server().status().state, "failed");
          assert.equal(
            server().status().lastError?.message.includes(status === 404 ? "session" : String(status)),
            true,
          );
        });
      });
    }

    test("still answers what it was asked before", () => {
      const answers: (() => void)[] = [];
      let isBroken = false;
      const { handle } = restarting(null, (id, response) => {
        if (isBroken) return void response.writeHead(500).end();
        answers.push(() => DONE(id, response));
      });
      return withTools(handle, async (call, { server }, requests) => {
        const first = call();
        await until(() => answers.length === 1, "it is asked");
        isBroken = true;
        assert.equal((await call()).result.isError, true);
        assert.equal(server().status().state, "failed");
        answers[0]?.();
        assert.equal((await first).result.output, "done");
        await until(() => requests.some(({ method }) => method === "DELETE"), "the old session is ended");
      });
    });
  });

  test("its era is found out once, over restarts of the gateway too, and again after a day", async () => {
    const clock = createFakeClock();
    const asked: string[] = [];
    const good = legacy((id, response) => json(response, id, { content: [] }));
    await withHttp((request, message, response) => {
      asked.push(message.method ?? "");
      good(request, message, response);
    }, (url) =>
      withMcp(servers(url), async ({ server, restart }) => {
        const probes = async () => {
          await server().request("tools/call", call, { signal: NEVER });
          return asked.filter((method) => method === "server/discover").length;
        };
        assert.equal(await probes(), 1);
        await restart();
        assert.equal(await probes(), 1);
        assert.equal(server().status().era, "legacy");
        await restart();
        await clock.advance(86_400_000);
        assert.equal(await probes(), 2);
      }, { clock }));
  });

  test("what breaks before a call was sent leaves nothing unknown", () => {
    let isBroken = false;
    const good = legacy((id, response) => json(response, id, { content: [] }));
    return withHttp(
      (request, message, response) =>
        isBroken && message.method === "tools/list" ? void response.destroy() : good(request, message, response),
      (url) =>
        withMcp(servers(url), async ({ server, restart }) => {
          await server().freshTools(NEVER);
          isBroken = true;
          await restart();
          const { code, written } = await fails(server().request("tools/call", call, { signal: NEVER }));
          assert.deepEqual({ code, written }, { code: "mcp_lost", written: false });
        }),
    );
  });

  test("a session that ends waits no longer to open any of its streams again", async () => {
    const retryMs = 31_000;
    let pauses = 0;
    const fake = createFakeClock();
    const clock: FakeClock = {
      ...fake,
      after(ms, fn) {
        if (ms === retryMs) pauses++;
        return fake.after(ms, fn);
      },
    };
    const breaking = legacy((_id, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).end(`retry: ${retryMs}\nid: 1\ndata:\n\n`);
    });
    await withHttp(breaking, (url) =>
      withMcp(servers(url), async ({ server }) => {
        const request = () => fails(server().request("tools/call", call, { signal: NEVER }));
        const calls = [request(), request()];
        await until(() => pauses === 2, "nothing waits to open them again");
        await server().close();
        for (const { code } of await Promise.all(calls)) assert.equal(code, "mcp_lost");
        await until(() => clock.pending() === 0, () => `${clock.pending()} timers are left`);
      }, { clock }));
  });

  describe("a start that fails after the server announced a change", () => {
    /** Answers as a server whose tools cannot be read while `isBroken()`. Each call, and each such reading, announces a change. */
    const announcing = (isBroken: () => boolean): Handler => {
      let name = "echo";
      const announce = (response: ServerResponse, answer: object) => {
        const changed = { jsonrpc: "2.0", method: "notifications/tools/list_changed" };
        const events = [changed, { jsonrpc: "2.0", ...answer }].map((event) => `data: ${JSON.stringify(event)}\n\n`);
        response.writeHead(200, { "content-type": "text/event-stream" }).end(events.join(""));
      };
      const good = legacy((id, response) => {
        name = "fresh";
        announce(response, { id, result: { content: [] } });
      });
      return (request, message, response) => {
        const { id, method } = message;
        if (method !== "tools/list") return good(request, message, response);
        if (isBroken()) return announce(response, { id, error: { code: -32603, message: "No tools" } });
        json(response, id, { tools: [{ name, inputSchema: { type: "object" } }] });
      };
    };

    test("leaves no timer behind its close", async () => {
      const clock = createFakeClock();
      await withHttp(announcing(() => true), (url) =>
        withMcp(servers(url), async ({ server }) => {
          await until(() => server().status().state === "failed", "it has failed");
          await server().close();
          assert.equal(clock.pending(), 0);
        }, { clock }));
    });

    test("swallows no change that the next session announces", async () => {
      const clock = createFakeClock();
      let isBroken = true;
      await withHttp(announcing(() => isBroken), (url) =>
        withMcp(servers(url), async ({ server }) => {
          await until(() => server().status().state === "failed", "it has failed");
          isBroken = false;
          await server().request("tools/call", call, { signal: NEVER });
          await clock.advance(1_000);
          await until(() => server().tools().some(({ name }) => name === "fresh"), "the new tool is known");
        }, { clock }));
    });
  });

  test("nothing was written where nobody listens", () =>
    withMcp(servers("http://127.0.0.1:9/mcp"), async ({ server }) => {
      const { code, written, message } = await fails(server().request("tools/call", call, { signal: NEVER }));
      assert.deepEqual({ code, written }, { code: "mcp_unavailable", written: false });
      assert.match(message, /"one"/);
    }));
});
