import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { createGateway, defineTool, type Gateway, type GatewayLogLine, ToolError } from "../../handlers/mod.ts";
import { ConfigError } from "../../lib/base/errors.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const TOKEN = "a-token-from-the-environment";
const BASE = {
  description: "Does something",
  access: "read",
  outside: false,
  inputSchema: {
    type: "object",
    properties: { text: { type: "string", description: "A text" } },
    additionalProperties: false,
  },
} as const;

const circle: Record<string, unknown> = {};
circle["self"] = circle;

const TOOLS = [
  defineTool<{ text?: string }>({ ...BASE, name: "say", execute: ({ text }) => `said ${text}` }),
  defineTool({ ...BASE, name: "take_any", inputSchema: { type: "object" }, execute: (input) => JSON.stringify(input) }),
  defineTool({ ...BASE, name: "give_object", execute: () => Promise.resolve({ euros: 3 }) }),
  defineTool({ ...BASE, name: "give_circle", execute: () => circle }),
  defineTool({ ...BASE, name: "give_function", execute: () => () => 1 }),
  defineTool({ ...BASE, name: "give_nothing", execute: () => {} }),
  defineTool({ ...BASE, name: "give_much", execute: () => "x".repeat(100_000_000) }),
  defineTool({
    ...BASE,
    name: "refuse",
    execute() {
      throw new ToolError("no_beans", "Cannot sell: no beans");
    },
  }),
  defineTool({
    ...BASE,
    name: "break",
    execute() {
      throw "no error at all";
    },
  }),
  defineTool({ ...BASE, name: "hang", timeoutMs: 1, execute: (_input, { signal }) => untilAborted(signal) }),
  defineTool<{ text?: string }>({ ...BASE, name: "mutate", execute: (input) => input.text = "changed" }),
  defineTool({ ...BASE, name: "write_it", access: "write", execute: () => "written" }),
];

/** Never resolves by itself. */
function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

describe("tools of the program", () => {
  const lines: GatewayLogLine[] = [];
  let gateway: Gateway;
  let done: Promise<void>;
  let release = () => {};

  before(() =>
    new Promise<void>((resolve, reject) => {
      done = withTemporaryFolder(async (folder) => {
        gateway = await createGateway({
          dataDir: join(folder, "data"),
          workspace: folder,
          basePath: "/gw",
          config: { provider: { kind: "offline" }, autonomy: { level: "read_only" } },
          environment: { POSTERN_TOKEN: TOKEN },
          tools: TOOLS,
          onLog: (line) => void lines.push(line),
        });
        const held = new Promise<void>((free) => release = free);
        resolve();
        await held;
        await gateway.close();
      });
      done.catch(reject);
    })
  );
  after(async () => {
    release();
    await done;
  });

  const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
  async function call(name: string, input: unknown = {}) {
    const reply = await gateway.request(`/v1/tools/${name}/call`, {
      method: "POST",
      headers,
      body: JSON.stringify({ input }),
    });
    return await reply.json() as { output: string; is_error: boolean; data?: unknown };
  }

  test("text and JSON values are results, and a failure says what the model is told", async () => {
    assert.deepEqual(await call("say", { text: "hi" }), { output: "said hi", is_error: false });
    assert.deepEqual(await call("give_object"), { output: '{"euros":3}', is_error: false, data: { euros: 3 } });
    assert.deepEqual(await call("give_nothing"), { output: "", is_error: false });
    assert.deepEqual(await call("refuse"), { output: "Cannot sell: no beans", is_error: true });
    for (const name of ["give_circle", "give_function"]) {
      const { output, is_error } = await call(name);
      assert.ok(is_error && /neither text nor a JSON value/.test(output), output);
    }
  });

  test("input that breaks the schema does not reach the tool", async () => {
    const { output, is_error } = await call("say", { text: 3 });
    assert.ok(is_error && /"text"/.test(output), output);
    assert.ok((await call("say", { txet: "hi" })).is_error);
    assert.equal((await call("take_any", { any: "thing" })).output, '{"any":"thing"}');
  });

  test("a tool that throws, hangs, returns 100 MB or changes its input harms nobody", async () => {
    assert.match((await call("break")).output, /internal error/);
    assert.ok(lines.some(({ message, fields }) => message === "A tool failed" && fields["tool"] === "break"));
    // The clock's timers do not keep a process alive, as a server does
    const alive = setInterval(() => {}, 1000);
    assert.match((await call("hang")).output, /stopped after 0\.001 s/);
    clearInterval(alive);
    const much = await call("give_much");
    assert.ok(much.output.length < 300_000 && /Output cut at/.test(much.output));
    assert.equal((await call("mutate", { text: "hi" })).output, "changed");
    assert.equal((await call("say", { text: "still here" })).output, "said still here");
  });

  test("the policy decides by the declared access, and the audit has the call", async () => {
    const { output, is_error } = await call("write_it");
    assert.ok(is_error && /read_only/.test(output), output);
    const audit = await (await gateway.request("/v1/audit?limit=100", { headers })).text();
    assert.match(audit, /"write_it"/);
  });

  test("lists name the source, and request() asks for a token as fetch() does", async () => {
    const { data } = await (await gateway.request("/v1/tools", { headers })).json() as {
      data: { name: string; source: string }[];
    };
    assert.equal(data.find(({ name }) => name === "say")?.source, "program");
    assert.equal((await gateway.request("/v1/tools")).status, 401);
    await assert.rejects(gateway.request("v1/tools"), TypeError);
  });
});

test("a definition that is wrong is refused by what is wrong", () => {
  const given = { ...BASE, name: "fine", execute: () => "" };
  const cases: readonly (readonly [Record<string, unknown>, RegExp])[] = [
    [{ access: undefined }, /access must be one of read, state/],
    [{ acces: "read" }, /no option "acces"/],
    [{ name: "Not Fine" }, /name must match/],
    [{ description: "" }, /description/],
    [{ timeoutMs: 0 }, /timeoutMs/],
    [{ execute: undefined }, /execute/],
  ];
  for (const [change, message] of cases) {
    assert.throws(() => defineTool({ ...given, ...change } as Parameters<typeof defineTool>[0]), message);
  }
  assert.throws(() => defineTool({ ...given, inputSchema: { type: "object", $ref: "#" } }));
  // @ts-expect-error access is required
  assert.throws(() => defineTool({ name: "a", description: "b", inputSchema: BASE.inputSchema, execute: () => "" }));
});

test("names of built-in tools, names given twice and objects of another make are refused", () =>
  withTemporaryFolder(async (folder) => {
    const tool = (name: string) => defineTool({ ...BASE, name, execute: () => "" });
    const cases: readonly (readonly [readonly unknown[], string])[] = [
      [[tool("read_file")], "tool_name_taken"],
      [[tool("twice"), tool("twice")], "tool_name_taken"],
      [[{ name: "forged", execute: () => "" }], "tool_invalid"],
      [[null], "tool_invalid"],
    ];
    for (const [tools, code] of cases) {
      const options = { dataDir: join(folder, "data"), workspace: folder, tools: tools as never };
      await assert.rejects(createGateway(options), (error) => error instanceof ConfigError && error.code === code);
    }
  }));
