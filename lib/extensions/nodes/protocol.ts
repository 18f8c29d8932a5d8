import * as v from "valibot";
import { isShallow } from "../../base/json.ts";

/**
 * Version of the protocol between the gateway and a node on `/ws/node`: one JSON object in each text frame, checked on both sides.
 *
 * The node begins with `hello`, the gateway answers `welcome`. From then on the gateway asks (`describe`, `invoke`, `ping`) and may
 * take a call back (`cancel`); the node answers each ask once. Neither repeats anything by itself. Fields that are not known here are dropped, so that a later version may add some.
 */
export const PROTOCOL_VERSION = 1;

/** Bytes of one frame that a node reads, and that a gateway sends. */
export const MAX_FRAME_BYTES = 2_097_152;
/** Calls at work on one node at once. */
export const MAX_IN_FLIGHT = 16;
/** Tools that one node may offer. */
export const MAX_TOOLS = 256;
/** Deepest nesting of a frame. */
const MAX_DEPTH = 64;
const MAX_DESCRIPTION = 8192;
const MAX_SECONDS_MS = 86_400_000;

/** Why one side closes the link, as the close code of the socket. Source: RFC 6455 section 7.4.2, the range for applications */
export const CLOSE = {
  /** The other side broke this protocol */
  protocol: 4400,
  /** Another connection of the same id has taken over */
  replaced: 4409,
  /** The other side speaks another version */
  version: 4426,
} as const;

const id = v.pipe(v.string(), v.regex(/^[\w.:-]{1,64}$/));
const wholeNumber = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(Number.MAX_SAFE_INTEGER));
const milliseconds = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(MAX_SECONDS_MS));
const table = v.record(v.string(), v.unknown());

/** Name of a node's tool: short enough for `node__<id>__<name>` to be a name that every model takes. */
export const OFFERED_TOOL_NAME = /^[a-zA-Z][a-zA-Z0-9_-]{0,31}$/;
const toolName = v.pipe(v.string(), v.regex(OFFERED_TOOL_NAME));

const inputSchema = v.looseObject({
  type: v.literal("object"),
  properties: v.record(v.string(), table),
  required: v.exactOptional(v.array(v.string())),
  additionalProperties: v.literal(false),
});

/** A tool as its node tells it. */
const offerSchema = v.object({
  name: toolName,
  description: v.pipe(v.string(), v.maxLength(MAX_DESCRIPTION)),
  /** Access that the node's own policy gives the tool. The gateway decides by its own configuration alone */
  access: v.picklist(["read", "state", "write", "network"]),
  input_schema: v.optional(inputSchema),
});
/** A tool that a node offers. */
export type ToolOffer = v.InferOutput<typeof offerSchema>;

/** Schema of the tools of a node. */
export const offersSchema = v.pipe(
  v.array(offerSchema),
  v.maxLength(MAX_TOOLS),
  v.check((tools) => new Set(tools.map(({ name }) => name)).size === tools.length),
);

const fromNode = {
  hello: v.object({
    type: v.literal("hello"),
    v: wholeNumber,
    /** Version of the program */
    version: v.pipe(v.string(), v.maxLength(64)),
    platform: v.pipe(v.string(), v.maxLength(64)),
    tools: offersSchema,
  }),
  tools: v.object({ type: v.literal("tools"), id, tools: offersSchema }),
  result: v.object({
    type: v.literal("result"),
    id,
    output: v.string(),
    is_error: v.boolean(),
    /** True when the tool ran. False: the call was refused and changed nothing */
    ran: v.boolean(),
    data: v.optional(v.unknown()),
  }),
  pong: v.object({ type: v.literal("pong"), n: wholeNumber }),
} as const;

const fromGateway = {
  welcome: v.object({
    type: v.literal("welcome"),
    v: wholeNumber,
    /** Between two pings */
    heartbeat_ms: milliseconds,
    /** After so long without a frame the link counts as broken */
    silence_ms: milliseconds,
    /** Longest frame that the gateway reads, in bytes */
    max_frame_bytes: v.pipe(wholeNumber, v.minValue(1024)),
  }),
  describe: v.object({ type: v.literal("describe"), id }),
  invoke: v.object({
    type: v.literal("invoke"),
    id,
    tool: toolName,
    input: table,
    /** Ids of the gateway's records, so that both audits can be laid side by side */
    run_id: id,
    call_id: id,
  }),
  cancel: v.object({ type: v.literal("cancel"), id }),
  ping: v.object({ type: v.literal("ping"), n: wholeNumber }),
} as const;

type Frames<T extends Record<string, v.GenericSchema>> = { [Type in keyof T]: v.InferOutput<T[Type]> }[keyof T];
/** A frame that a node sends. */
export type NodeFrame = Frames<typeof fromNode>;
/** A frame that the gateway sends. */
export type GatewayFrame = Frames<typeof fromGateway>;
/** The first frame of a node. */
export type HelloFrame = Extract<NodeFrame, { type: "hello" }>;
/** The answer of a node to a call. */
export type ResultFrame = Extract<NodeFrame, { type: "result" }>;
/** The answer of the gateway to `hello`. */
export type WelcomeFrame = Extract<GatewayFrame, { type: "welcome" }>;
/** A call of a tool of the node. */
export type InvokeFrame = Extract<GatewayFrame, { type: "invoke" }>;

/** A frame, or why it is none; the reason never repeats the frame's values. */
export type ParsedLinkFrame<F> = { readonly ok: true; readonly frame: F } | {
  readonly ok: false;
  readonly reason: string;
};

/** A frame of a node, for the gateway. Never throws. */
export function parseNodeFrame(text: string): ParsedLinkFrame<NodeFrame> {
  return parse<NodeFrame>(text, fromNode);
}

/** A frame of a gateway, for the node. Never throws. */
export function parseGatewayFrame(text: string): ParsedLinkFrame<GatewayFrame> {
  return parse<GatewayFrame>(text, fromGateway);
}

function parse<F>(text: string, schemas: Readonly<Record<string, v.GenericSchema>>): ParsedLinkFrame<F> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { ok: false, reason: "a frame is not JSON" };
  }
  const type = value !== null && typeof value === "object" && "type" in value ? value.type : undefined;
  if (typeof type !== "string" || !Object.hasOwn(schemas, type)) {
    return { ok: false, reason: "a frame has no type that is known" };
  }
  if (!isShallow(value, MAX_DEPTH)) return { ok: false, reason: `a "${type}" frame is nested too deep` };
  // The key was just found in the table
  const result = v.safeParse(schemas[type] as v.GenericSchema, value, { abortEarly: true });
  if (result.success) return { ok: true, frame: result.output as F }; // the type of the frame that the schema is of
  // A key is the other side's own text: as ASCII it fits into a close reason, and says nothing to a terminal
  const field = (v.getDotPath(result.issues[0]) ?? "type").replace(/[^\x20-\x7e]/g, "?").slice(0, 64);
  return { ok: false, reason: `a "${type}" frame has no valid ${JSON.stringify(field)}` };
}
