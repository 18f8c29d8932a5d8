import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { freePort } from "../support/free_port.ts";
import { HELLO } from "../support/node_bench.ts";
import { startPostern } from "../support/postern_process.ts";
import type { StartedProcess } from "../support/started_process.ts";
import { jsonOf, until, withWorld } from "../support/world.ts";

const TOKEN = "token-of-the-gateway-0123456789";
const NODE_TOKEN = "token-of-the-nodes-0123456789";

const GATEWAY = `[gateway]
rate_limit_max = 0
[gateway.node_control]
enabled = true
auth_token_env = "NODE_TOKEN"
allowed_node_ids = ["pi", "gpu"]
[provider]
kind = "offline"
[tools."node__pi__read_file"]
access = "read"
[tools."node__pi__shell"]
access = "state"
`;

const NODE = `[security]
allowed_commands = ["sh"]
[security.shell]
sandbox = "off"
[security.write_file]
enabled = true
[autonomy]
auto_approve = ["shell"]
`;

interface Machines {
  readonly url: string;
  readonly folder: string;
  startNode(more?: readonly string[]): Promise<StartedProcess>;
  /** Kills it and starts it again on the same port */
  restartGateway(): Promise<void>;
  /** @returns its exit code after SIGTERM */
  stopGateway(): Promise<number | null>;
  call(path: string, body?: unknown): Promise<Response>;
}

/** A gateway and a second machine, each with its own folders; what runs in the end is killed. */
async function withMachines(use: (machines: Machines) => Promise<void>): Promise<void> {
  await withWorld(async (world) => {
    const folder = await world.folder();
    for (const name of ["home", "gateway", "node"]) mkdirSync(join(folder, name));
    writeFileSync(join(folder, "gateway.toml"), GATEWAY);
    writeFileSync(join(folder, "node.toml"), NODE);
    writeFileSync(join(folder, "node", "sensor.txt"), "21 degrees\n");
    const start = async (argv: readonly string[], env: Record<string, string>, ready: RegExp) => {
      const made = await startPostern(argv, { env: { HOME: join(folder, "home"), ...env }, ready });
      world.onEnd(() => made.end("SIGKILL"));
      return made;
    };
    const folders = (name: string) => [
      ...["--config", join(folder, `${name}.toml`), "--data-dir", join(folder, `${name}-data`)],
      ...["--workspace", join(folder, name)],
    ];
    // The port stays the same over a restart
    const port = String(await freePort());
    const startGateway = () =>
      start(
        ["gateway", "--port", port, ...folders("gateway")],
        { POSTERN_TOKEN: TOKEN, NODE_TOKEN },
        /Address +(http:\/\/127\.0\.0\.1:\d+)\//,
      );
    let gateway = await startGateway();
    const url = gateway.match[1] ?? "";
    await use({
      url,
      folder,
      startNode: (more = []) =>
        start(
          ["node", "--connect", url, "--id", "pi", ...folders("node"), ...more],
          { POSTERN_NODE_TOKEN: NODE_TOKEN },
          /Connected to .* as pi, with \d+ tools/,
        ),
      async restartGateway() {
        await gateway.end("SIGKILL");
        gateway = await startGateway();
      },
      stopGateway: () => gateway.end("SIGTERM"),
      call: (path, body) =>
        fetch(url + path, {
          method: body === undefined ? "GET" : "POST",
          headers: { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" },
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        }),
    });
  });
}

/** Returns the text that the node's commands have written; the file is there a moment before its line */
function counterOf({ folder }: Machines): string {
  try {
    return readFileSync(join(folder, "node", "counter"), "utf8");
  } catch {
    return "";
  }
}

const hasBegun = (machines: Machines) => counterOf(machines) === "begun\n";

const audited = async (machines: Machines) => (await jsonOf(machines.call("/v1/audit?limit=100"))).data as Audited[];

interface Audited {
  readonly type: string;
  readonly tool?: string;
  readonly call_id?: string;
  readonly request_id?: string;
  readonly outcome?: string;
  readonly action?: string;
  readonly by?: { readonly via: string };
}

test("a second machine's tools are used by HTTP and by the agent, under both policies and in both audits", async () => {
  await withMachines(async (machines) => {
    const { call } = machines;
    const node = await machines.startNode();
    const { data } = await jsonOf(call("/v1/nodes"));
    assert.deepEqual(data.map((each: { id: string; connected: boolean }) => [each.id, each.connected]), [
      ["gpu", false],
      ["pi", true],
    ]);
    const described = await jsonOf(call("/v1/nodes/pi/describe", {}));
    const names = described.tools.map(({ registered_as }: { registered_as: string }) => registered_as);
    assert.ok(names.includes("node__pi__read_file"));
    assert.ok(!names.includes("node__pi__subagent_spawn"), "a node has no agent");

    const read = await jsonOf(call("/v1/nodes/pi/invoke", { tool: "read_file", input: { path: "sensor.txt" } }));
    assert.deepEqual([read.output, read.is_error], ["21 degrees\n", false]);
    const outside = await jsonOf(
      call("/v1/nodes/pi/invoke", { tool: "read_file", input: { path: "../gateway.toml" } }),
    );
    assert.equal(outside.is_error, true);

    // The gateway's person approves, and the node's own policy still says no
    const write = { tool: "write_file", input: { path: "x.txt", content: "x" } };
    const asked = await jsonOf(call("/v1/nodes/pi/invoke", write));
    assert.match(asked.output, /reaches the network/);
    assert.match(asked.approval_id, /^apr_/);
    const denied = await jsonOf(call("/v1/nodes/pi/invoke", { ...write, approved: true }));
    assert.equal(denied.is_error, true);
    assert.match(
      denied.output,
      /^Denied \(nobody_could_answer\): the node's own policy asks, .*; a change there counts from the node's next start$/,
    );

    const message = `/node__pi__read_file {"path": "sensor.txt"}`;
    const completion = await jsonOf(
      call("/v1/chat/completions", { model: "assistant", messages: [{ role: "user", content: message }] }),
    );
    assert.match(completion.choices[0].message.content, /21 degrees/);

    const calls = (await audited(machines)).filter(({ type }) => type === "call");
    assert.deepEqual(calls.map(({ tool, outcome }) => [tool, outcome]).reverse(), [
      ["node__pi__read_file", "ok"],
      ["node__pi__read_file", "error"],
      ["node__pi__write_file", "error"],
      ["node__pi__read_file", "ok"],
    ]);
    assert.equal(await node.end("SIGTERM"), 0);
    const shown = await startPostern(
      [
        "audit",
        "show",
        "--json",
        "--config",
        join(machines.folder, "node.toml"),
        "--data-dir",
        join(machines.folder, "node-data"),
      ],
      { env: { HOME: join(machines.folder, "home") }, ready: /\n\]\n$|\}\n$/ },
    );
    assert.equal(await shown.ended, 0);
    const text = shown.output();
    for (const { call_id } of calls) assert.match(text, new RegExp(`"request_id": "${call_id}"`));
    assert.match(text, /"via": "node"/);
    assert.match(text, /"action": "disconnected"/);
    assert.doesNotMatch(text + node.output(), new RegExp(NODE_TOKEN));
  });
});

test("a node that is killed in the middle of a call is an error at once that says the outcome is unknown", async () => {
  await withMachines(async (machines) => {
    const node = await machines.startNode();
    const command = `sh -c "echo begun >> counter; sleep 30"`;
    const calling = jsonOf(machines.call("/v1/nodes/pi/invoke", { tool: "shell", input: { command } }));
    await until(async () => {
      const { calls_in_flight } = await jsonOf(machines.call("/v1/nodes/pi"));
      return calls_in_flight === 1 && hasBegun(machines);
    });
    await node.end("SIGKILL");
    const reply = await calling;
    assert.equal(reply.is_error, true);
    assert.match(reply.output, /whether it took effect is unknown/);
    const away = await jsonOf(machines.call("/v1/nodes/pi/invoke", { tool: "shell", input: { command } }));
    assert.match(away.output, /it is off; set up the link of the node "pi"/);
    await machines.startNode();
    const { output } = await jsonOf(
      machines.call("/v1/nodes/pi/invoke", { tool: "shell", input: { command: "sh -c 'echo back'" } }),
    );
    assert.match(output, /back/);
    assert.equal(counterOf(machines), "begun\n");
  });
});

test("a node comes back by itself after its gateway was killed and started again", async () => {
  await withMachines(async (machines) => {
    const node = await machines.startNode();
    await machines.restartGateway();
    await node.until(/Connected to .* as pi/);
    const read = await jsonOf(
      machines.call("/v1/nodes/pi/invoke", { tool: "read_file", input: { path: "sensor.txt" } }),
    );
    assert.equal(read.output, "21 degrees\n");
    assert.equal(await node.end("SIGTERM"), 0);
  });
});

test("a gateway that shuts down lets a node's call end first, and the node knows why the link has ended", async () => {
  await withMachines(async (machines) => {
    const node = await machines.startNode();
    const command = `sh -c "echo begun >> counter; sleep 0.5; echo ended"`;
    const calling = jsonOf(machines.call("/v1/nodes/pi/invoke", { tool: "shell", input: { command } }));
    await until(() => hasBegun(machines));
    const stopping = machines.stopGateway();
    assert.match((await calling).output, /ended/);
    assert.equal(await stopping, 0);
    await node.until(/The link to the gateway has ended .*code=1001/);
    assert.equal(await node.end("SIGTERM"), 0);
  });
});

/** A node of the test's own on a real socket: it says hello and then what it is told to. */
async function connectRaw(url: string, id: string) {
  const target = `${url.replace("http", "ws")}/ws/node?id=${id}`;
  // Node and Deno take headers here, which the standard does not know
  const options = { headers: { authorization: `Bearer ${NODE_TOKEN}` } } as unknown as string[];
  const socket = new WebSocket(target, options);
  const frames: { readonly type: string; readonly id?: string }[] = [];
  socket.addEventListener("message", ({ data }) => void frames.push(JSON.parse(String(data))));
  const closed = new Promise<number>((resolve) => socket.addEventListener("close", ({ code }) => resolve(code)));
  await new Promise((resolve, reject) => {
    socket.addEventListener("open", resolve);
    socket.addEventListener("error", reject);
  });
  const say = (frame: unknown) => socket.send(typeof frame === "string" ? frame : JSON.stringify(frame));
  const hears = async (type: string): Promise<{ readonly id?: string }> => {
    const found = () => frames.find((frame) => frame.type === type);
    await until(() => found() !== undefined, `it heard no ${type}`);
    return found() ?? {};
  };
  say(HELLO);
  await hears("welcome");
  return { say, hears, closed, leave: () => socket.close() };
}

test("on a real socket: a second node takes the first one's place, which ends; a hostile one is cut off, and the gateway stays", async () => {
  await withMachines(async (machines) => {
    const first = await machines.startNode();
    const second = await connectRaw(machines.url, "pi");
    assert.equal(await first.ended, 1);
    assert.match(first.output(), /another process has connected with this id/);

    // The agent's call is at work there when it is taken over in its turn
    const calling = jsonOf(
      machines.call("/v1/nodes/pi/invoke", { tool: "echo", input: { text: "x" }, approved: true }),
    );
    await second.hears("invoke");
    const third = await connectRaw(machines.url, "pi");
    assert.equal(await second.closed, 4409);
    assert.match((await calling).output, /whether it took effect is unknown/);

    third.say({ type: "result", id: "99", output: "nobody asked", is_error: false, ran: true });
    assert.equal(await third.closed, 4400);

    const huge = await connectRaw(machines.url, "gpu");
    const waiting = jsonOf(
      machines.call("/v1/nodes/gpu/invoke", { tool: "echo", input: { text: "x" }, approved: true }),
    );
    const { id } = await huge.hears("invoke");
    huge.say({ type: "result", id, output: "x".repeat(3_000_000), is_error: false, ran: true });
    assert.equal((await waiting).is_error, true);
    assert.ok([1006, 1009].includes(await huge.closed));

    const large = await connectRaw(machines.url, "gpu");
    const cut = jsonOf(machines.call("/v1/nodes/gpu/invoke", { tool: "echo", input: { text: "x" }, approved: true }));
    large.say({
      type: "result",
      id: (await large.hears("invoke")).id,
      output: "x".repeat(1_000_000),
      is_error: false,
      ran: true,
    });
    const { output } = await cut;
    assert.ok(output.length < 270_000 && /Output cut at 262144 of 1000000 bytes/.test(output));
    large.leave();
    await large.closed;
    assert.equal((await fetch(`${machines.url}/health`)).status, 200);
  });
});
