import { readFile, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { messageOf } from "../../lib/base/errors.ts";
import process from "node:process";
import { withoutEnd } from "../../lib/base/text.ts";
import { isNodeId } from "../../lib/config/schema/gateway.ts";
import { VERSION } from "../../lib/base/version.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import type { NodeInfo } from "../../lib/base/records/extension_views.ts";
import { isLoopbackName } from "../../lib/system/net/address.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { withGateway } from "../reach_gateway.ts";
import { toTable } from "../terminal/terminal_text.ts";

/** Name of the environment variable with the token of `postern node`. */
export const NODE_TOKEN_VARIABLE = "POSTERN_NODE_TOKEN";

const MAX_TOKEN_BYTES = 65_536;

/**
 * Command `postern node`: offers the tools of this machine to a gateway elsewhere, until SIGINT or SIGTERM. Each call goes through this
 * machine's own policy and audit, with its own configuration and data directory. A second signal ends the node at once.
 */
export const nodeCommand = defineCliCommand({
  args: {
    connect: { type: "string", valueHint: "url", description: "Address of the gateway (required)" },
    id: {
      type: "string",
      valueHint: "id",
      description: "Id of this node in the gateway's allowed_node_ids (required)",
    },
    "token-file": {
      type: "string",
      valueHint: "path",
      description: `File with the token of node control (default: the environment variable ${NODE_TOKEN_VARIABLE})`,
    },
    tools: {
      type: "string",
      valueHint: "patterns",
      description: "Only these tools, as read_file,git* (default: those of [agent] tools)",
    },
  },
  example: "postern node --connect https://gateway.example.com --id pi",
  async run(context, args) {
    const { connect, id } = args;
    if (connect === undefined || id === undefined) {
      throw new UsageError(`Cannot start a node without ${connect === undefined ? "--connect" : "--id"}: give both`);
    }
    const url = toLinkUrl(connect, id);
    const token = await readToken(context, args["token-file"]);
    if (url.protocol === "http:" && !isLoopbackName(url.hostname)) {
      context.say("The token and all calls go unencrypted: use https, or a tunnel");
    }
    const loaded = await context.loadConfig();
    const patterns = args.tools?.split(",").map((pattern) => pattern.trim()) ?? loaded.config.agent.tools;
    await offerTools(context, { id, url, token, patterns, loaded });
    return EXIT.ok;
  },
});

interface Offer {
  readonly id: string;
  /** Address of the gateway's link, from `toLinkUrl` */
  readonly url: URL;
  readonly token: string;
  /** Names of the tools that are offered, with `*` for any characters */
  readonly patterns: readonly string[];
  readonly loaded: LoadedConfig;
}

/** Starts the services of this machine, and offers their tools to the gateway until a signal ends that. */
async function offerTools(context: CommandContext, { id, url, token, patterns, loaded }: Offer): Promise<void> {
  const { io } = context;
  const [{ randomControlToken, startServices }, { runNode }, { createNodeWork }, { openLinkSocket }] = await Promise
    .all([
      import("../serve/start_services.ts"),
      import("../../lib/extensions/nodes/run_node.ts"),
      import("../../lib/extensions/nodes/offer_tools.ts"),
      import("../../lib/system/net/link_socket.ts"),
    ]);
  // Under this name the redactor masks the token, also when it came from a file
  const own = { ...context, io: { ...io, env: { ...io.env, [NODE_TOKEN_VARIABLE]: token } } };
  const services = await startServices(own, { loaded, agent: false, controlToken: randomControlToken(), quiet: false });
  const { clock, random, log, audit, tools: executor } = services;
  const graceMs = loaded.config.gateway.shutdown_grace_secs * 1000;
  const stop = watchStop(context, graceMs);
  const work = createNodeWork({ executor, random, patterns });
  try {
    await runNode({
      id,
      url: url.origin,
      open: (handlers, signal) => openLinkSocket({ url, token, clock, signal }, handlers),
      work,
      version: VERSION,
      platform: `${process.platform} ${process.arch}`,
      kit: { clock, random, log },
      audit: audit.append,
      onConnected() {
        const names = work.tools().map(({ name }) => name);
        context.print(
          { event: "connected", gateway: url.origin, id, tools: names },
          `Connected to ${url.origin} as ${id}, with ${names.length} tools`,
        );
      },
      signal: stop.signal,
      graceMs,
    });
  } finally {
    stop.ignore();
    await services.close();
  }
}

/** Returns the address of the gateway's link for a node. @throws {UsageError} an id or address that cannot be used */
function toLinkUrl(text: string, id: string): URL {
  if (!isNodeId(id)) {
    throw new UsageError(
      `Cannot use --id "${id}": it must be lower-case letters and digits with single "_" or "-", at most 24 characters`,
    );
  }
  const url = URL.parse(text.replace(/^ws(?=s?:\/\/)/, "http"));
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new UsageError(`Cannot use --connect: it must be an address, such as "https://gateway.example.com"`);
  }
  if (url.username !== "" || url.password !== "" || url.search !== "") {
    throw new UsageError(
      `Cannot use --connect: it must hold no credentials and no query; the token comes from ${NODE_TOKEN_VARIABLE} or --token-file`,
    );
  }
  url.pathname = `${withoutEnd(url.pathname, "/")}/ws/node`;
  url.hash = "";
  url.searchParams.set("id", id);
  return url;
}

/** Reads the token from a file or the environment: other users of the machine can read a command line. @throws {UsageError} {CommandError} */
async function readToken({ io }: CommandContext, path: string | undefined): Promise<string> {
  const token = path === undefined ? io.env[NODE_TOKEN_VARIABLE] ?? "" : await readTokenFile(resolve(io.cwd, path));
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  if (path === undefined && token === "") {
    throw new UsageError(`Cannot connect without a token: set ${NODE_TOKEN_VARIABLE}, or give --token-file`);
  }
  const where = path === undefined ? NODE_TOKEN_VARIABLE : `"${path}"`;
  throw new CommandError(`Cannot use the token of ${where}: it must be one word of visible ASCII`);
}

/** Reads a token from a file. @throws {CommandError} the file is missing, too large or closed to this user */
async function readTokenFile(path: string): Promise<string> {
  try {
    const found = await stat(path);
    if (!found.isFile() || found.size > MAX_TOKEN_BYTES) throw new Error("it is no small file");
    return (await readFile(path, "utf8")).trim();
  } catch (cause) {
    throw new CommandError(`Cannot read "${path}": ${messageOf(cause)}`);
  }
}

/** Listens for signals: the first lets calls finish and then ends the node, the second ends the process at once. */
function watchStop({ io, say }: CommandContext, graceMs: number) {
  const controller = new AbortController();
  const ignore = io.onInterrupt(() => {
    if (controller.signal.aborted) return io.exit(EXIT.failed);
    const hint = io.isTerminal.stderr ? "; press Ctrl-C again to stop at once" : "";
    say(`Stopping: calls have up to ${graceMs / 1000} s to finish${hint}`);
    controller.abort();
  });
  return { signal: controller.signal, ignore };
}

/** Command `postern nodes list`: machines that may offer their tools. */
export const nodesListCommand = defineCliCommand({
  args: {},
  example: "postern nodes list",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const { data } = await gateway.call("GET /v1/nodes");
      const rows = data.map((node) => [node.id, stateOf(node), String(node.tool_count), node.version ?? ""]);
      const none = "No node may connect: [gateway.node_control] allowed_node_ids is empty";
      context.print(
        data,
        data.length === 0 ? none : toTable(["ID", "STATE", "TOOLS", "VERSION"], rows, context.io.columns),
      );
    }),
});

/** Command `postern nodes show <id>`: state and tools of a node. A connected node is asked for its present tools. */
export const nodesShowCommand = defineCliCommand({
  args: { id: { type: "positional", required: true, description: "Id of the node, from postern nodes list" } },
  example: "postern nodes show pi",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const last = await gateway.call("GET /v1/nodes/:id", { params: { id } });
      const node = last.connected ? await gateway.call("POST /v1/nodes/:id/describe", { params: { id } }) : last;
      const rows = node.tools.map((tool) => [tool.registered_as, tool.node_access, tool.description]);
      context.print(
        node,
        `${node.id}: ${stateOf(node)}\n${toTable(["TOOL", "ON THE NODE", "DESCRIPTION"], rows, context.io.columns)}`,
      );
    }),
});

function stateOf({ connected, connected_at, disconnected_at, address }: NodeInfo): string {
  if (connected) return `connected since ${connected_at}${address === null ? "" : ` from ${address}`}`;
  return disconnected_at === null ? "not connected" : `gone since ${disconnected_at}`;
}
