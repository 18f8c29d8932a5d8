import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import type { GatewayLink, LinkPeer } from "../../lib/extensions/nodes/node_link.ts";
import { Nodes, type NodesOptions } from "../../lib/extensions/nodes/nodes.ts";
import type { Tool, ToolContext } from "../../lib/tools/runtime/tool.ts";
import type { ToolResult } from "../../lib/tools/runtime/tool_call.ts";
import { createFakeAudit, type FakeAudit } from "./fake_audit.ts";
import { createFakeClock, type FakeClock } from "./fake_clock.ts";

/** The gateway's side of a connection without a network, and a node that says what the test has it say. */
export interface FakeNode {
  readonly link: GatewayLink;
  /** Frames the gateway sent, parsed */
  // deno-lint-ignore no-explicit-any
  readonly frames: any[];
  closedWith: { readonly code: number; readonly reason: string } | undefined;
  terminated: boolean;
  /** The code it was closed with */
  code(): number | undefined;
  /** From now on the other side takes nothing */
  stuck: boolean;
  say(frame: unknown): void;
}

export interface NodeBench {
  readonly nodes: Nodes;
  readonly clock: FakeClock;
  readonly audit: FakeAudit;
  /** A connection of this id; `hello` is said unless it is false */
  connect(options?: { readonly id?: string; readonly hello?: false | Record<string, unknown> }): FakeNode;
  tool(name: string): Tool;
  /** Calls a registered tool */
  call(name: string, input: unknown, signal?: AbortSignal): Promise<ToolResult>;
}

export const ECHO = {
  name: "echo",
  description: "Says it again",
  access: "read",
  input_schema: {
    type: "object",
    properties: { text: { type: "string" } },
    required: ["text"],
    additionalProperties: false,
  },
};

export const HELLO = { type: "hello", v: 1, version: "0.1.0", platform: "linux x64", tools: [ECHO] };

export function createNodeBench(more: Partial<NodesOptions> = {}): NodeBench {
  const clock = createFakeClock();
  const audit = createFakeAudit();
  const nodes = new Nodes({
    authToken: "right-token-0123456789",
    allowedIds: ["pi", "gpu"],
    accessOf: () => undefined,
    settings: { heartbeatMs: 30_000, silenceMs: 60_000, maxFrameBytes: 2_097_152 },
    clock,
    log: SILENT,
    metrics: createMetrics(),
    audit: audit.append,
    ...more,
  });
  const tool = (name: string) => {
    const found = nodes.tools().find((each) => each.name === name);
    if (found === undefined) throw new Error(`There is no ${name}`);
    return found;
  };
  let calls = 0;
  return {
    nodes,
    clock,
    audit,
    tool,
    connect({ id = "pi", hello = {} } = {}) {
      const peer: LinkPeer = {
        send(text) {
          if (!node.stuck) node.frames.push(JSON.parse(text));
          return !node.stuck;
        },
        close: (code, reason) => void (node.closedWith ??= { code, reason }),
        terminate: () => void (node.terminated = true),
      };
      const node: FakeNode = {
        link: nodes.open(id, peer, "192.0.2.7"),
        frames: [],
        closedWith: undefined,
        terminated: false,
        code: () => node.closedWith?.code,
        stuck: false,
        say: (frame) => node.link.text(typeof frame === "string" ? frame : JSON.stringify(frame)),
      };
      if (hello !== false) node.say({ ...HELLO, ...hello });
      return node;
    },
    async call(name, input, signal = new AbortController().signal) {
      const prepared = tool(name).prepare(JSON.stringify(input));
      // A node's tool reads no more of its context
      const context = { runId: "run_1", callId: `call_${++calls}`, signal } as unknown as ToolContext;
      return await prepared.run(context);
    },
  };
}
