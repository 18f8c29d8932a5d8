import * as v from "valibot";
import type { DeepReadonly, ObjectJsonSchema } from "../json.ts";
import { accessSchema } from "./approval.ts";

/**
 * Plugins, skills, MCP servers and nodes as the API shows them: each view is one schema, which the reply, the description of the API and the types
 * of whoever makes or reads it come from. Times are in ISO 8601. Only what a route needs is here, since routes load this file.
 */

/**
 * Place of a plugin, from the one that is overridden by all others on: an installed package, the user's folder, `.plugins` and `plugins`
 * of the workspace, and `postern plugin dev`.
 */
export const PLUGIN_LAYERS = ["package", "user_dir", "project", "workspace", "dev"] as const;
/** Place of a plugin. */
export type PluginLayer = (typeof PLUGIN_LAYERS)[number];
/** Kinds of code that a plugin is. */
export const PLUGIN_KINDS = ["wasm", "process", "ffi"] as const;
/** States of a plugin. Source: docs/design/plugins.md "States" */
export const PLUGIN_STATES = ["installed", "enabled", "disabled"] as const;
/** State of a plugin that is there. A plugin that was removed has no record. */
export type PluginState = (typeof PLUGIN_STATES)[number];

/** A plugin, as `/v1/plugins` shows it. */
export const pluginSchema = v.object({
  id: v.string(),
  object: v.literal("plugin"),
  /** Null for a folder that cannot be used */
  version: v.nullable(v.string()),
  description: v.nullable(v.string()),
  kind: v.nullable(v.picklist(PLUGIN_KINDS)),
  state: v.picklist(PLUGIN_STATES),
  /** True when its tools can be called */
  on: v.boolean(),
  /** Why its tools are off, with what turns them on; null while they are on */
  reason: v.nullable(v.string()),
  source: v.picklist(PLUGIN_LAYERS),
  /** Folder that it was found in; null for a package */
  folder: v.nullable(v.string()),
  /** Address of the registry that it came from; null for others */
  registry: v.nullable(v.string()),
  /** SHA-256 over the whole content, which enabling binds; null for a folder that cannot be used */
  digest: v.nullable(v.string()),
  /** SHA-256 of the package; null for a folder */
  package_sha256: v.nullable(v.string()),
  /** Capabilities that it asks for */
  capabilities: v.object({
    workspace: v.picklist(["none", "read", "write"]),
    hosts: v.array(v.string()),
    host_functions: v.array(v.string()),
  }),
  /** Units of fuel that it asks for in each call; null: as configured */
  fuel: v.nullable(v.number()),
  /** Capabilities in words; empty: none */
  asks: v.array(v.string()),
  /** Rights that it asks for beyond what was granted before, in words. The same as `asks` for one that was never enabled */
  asks_more: v.array(v.string()),
  /** Sentence about the rights that it runs with; null for a folder that cannot be used */
  rights: v.nullable(v.string()),
  tools: v.array(v.object({ name: v.string(), description: v.string() })),
  /** Places of plugins with the same id that this one overrides */
  overrides: v.array(v.picklist(PLUGIN_LAYERS)),
  /** Null for one that nobody has installed, enabled or disabled */
  changed_at: v.nullable(v.string()),
  /** Last call of this content that failed since the start of the gateway; null: none */
  last_error: v.nullable(v.object({ at: v.string(), message: v.string() })),
});
/** A plugin as the API shows it. */
export type PluginInfo = DeepReadonly<v.InferOutput<typeof pluginSchema>>;

/** A plugin of the registry, as `/v1/plugin-registry` shows it. */
export const registryEntrySchema = v.object({
  id: v.string(),
  description: v.string(),
  /** The newest version */
  version: v.string(),
  kind: v.picklist(PLUGIN_KINDS),
  size: v.number(),
  capabilities: pluginSchema.entries.capabilities,
  /** Key of the publisher in base64; null: the newest version is not signed */
  key: v.nullable(v.string()),
});
/** A plugin of the registry. */
export type RegistryEntry = DeepReadonly<v.InferOutput<typeof registryEntrySchema>>;

/** Outcome of an installation from the registry. */
export const registryInstallSchema = v.object({
  plugin: pluginSchema,
  /** `pinned`: the first signed version, whose key counts from now on; `signed`: by the pinned key; `unsigned` */
  signature: v.picklist(["pinned", "signed", "unsigned"]),
  /** False for a plugin that has this version already */
  changed: v.boolean(),
});
/** Outcome of an installation from the registry. */
export type RegistryInstall = DeepReadonly<v.InferOutput<typeof registryInstallSchema>>;

/** Deviation of a skill from the format. */
export const skillProblemSchema = v.object({
  file: v.string(),
  /** 1-based */
  line: v.number(),
  /** Field of the front matter; null for the document as a whole */
  key: v.nullable(v.string()),
  reason: v.string(),
});
/** Deviation of a skill from the format. */
export type SkillProblem = DeepReadonly<v.InferOutput<typeof skillProblemSchema>>;

/**
 * States of a skill. `untrusted`: it is one of the workspace, and nobody trusts it. `changed`: its content is another than the one that was
 * trusted or installed. `unusable`: it breaks a rule of the format that nothing can make up for.
 */
export const SKILL_STATES = ["on", "untrusted", "changed", "unusable"] as const;
/** State of a skill. */
export type SkillState = (typeof SKILL_STATES)[number];
/** Kinds of sources that a skill is installed from. */
export const SOURCE_KINDS = ["folder", "archive", "git"] as const;

/** Place of skills: `own` holds what the operator put there, `user` is shared with other programs, `workspace` came with a project. */
export const SKILL_LAYERS = ["own", "user", "workspace"] as const;
/** Place of a skill. */
export type SkillLayer = (typeof SKILL_LAYERS)[number];

/** A skill, as `/v1/skills` shows it. */
export const skillSchema = v.object({
  name: v.string(),
  object: v.literal("skill"),
  description: v.nullable(v.string()),
  state: v.picklist(SKILL_STATES),
  /** True when the agent can read it */
  on: v.boolean(),
  /** Why it is off, with what turns it on; null while it is on */
  reason: v.nullable(v.string()),
  /** Place that it comes from */
  source: v.picklist(SKILL_LAYERS),
  /** Absolute path of its folder */
  folder: v.string(),
  /** SHA-256 over all files, which trust binds */
  digest: v.string(),
  /** Source that it was installed from; null for others */
  installed: v.nullable(v.object({
    kind: v.picklist(SOURCE_KINDS),
    from: v.string(),
    commit: v.nullable(v.string()),
    at: v.string(),
  })),
  /** True when the agent is told of it; false for `disable-model-invocation: true` */
  offered: v.boolean(),
  license: v.nullable(v.string()),
  compatibility: v.nullable(v.string()),
  metadata: v.record(v.string(), v.string()),
  /** Tools that its author would allow. They grant nothing */
  allowed_tools: v.array(v.string()),
  /** Tools that a run which has read it may not call any more, as its author names them */
  disallowed_tools: v.array(v.string()),
  files: v.array(v.object({ path: v.string(), size: v.number() })),
  /** Deviations from the format that other programs let pass, and those that make it unusable */
  warnings: v.array(skillProblemSchema),
  /** Folders of skills with the same name that it hides */
  hides: v.array(v.string()),
});
/** A skill as the API shows it. */
export type SkillInfo = DeepReadonly<v.InferOutput<typeof skillSchema>>;

/** A skill with what a person looks at before trusting it. */
export const skillDetailSchema = v.object({
  ...skillSchema.entries,
  /** Text of all files, at most 256 KiB */
  text: v.string(),
  /** Digest that is trusted now; null: none is */
  trusted_digest: v.nullable(v.string()),
  /** Lines that changed since it was trusted; null where none was, and where nothing changed */
  difference: v.nullable(v.string()),
});
/** A skill with what a person looks at before trusting it. */
export type SkillDetail = DeepReadonly<v.InferOutput<typeof skillDetailSchema>>;

/** Outcome of a strict check of a skill. */
export const skillTestSchema = v.object({
  name: v.string(),
  object: v.literal("skill_test"),
  ok: v.boolean(),
  errors: v.array(skillProblemSchema),
});
/** Outcome of a strict check of a skill. */
export type SkillTest = DeepReadonly<v.InferOutput<typeof skillTestSchema>>;

/** An MCP server, as `/v1/mcp-servers` shows it. Words of the server are those of a stranger. */
export const mcpServerInfoSchema = v.object({
  name: v.string(),
  object: v.literal("mcp_server"),
  transport: v.picklist(["stdio", "http"]),
  state: v.picklist(["disabled", "idle", "starting", "ready", "failed"]),
  /** Why it is off, with what turns it on; null while it may run */
  reason: v.nullable(v.string()),
  /** Era of the protocol of its newest session; null before the first one */
  era: v.nullable(v.picklist(["legacy", "modern"])),
  protocol_version: v.nullable(v.string()),
  /** Name and version that the server gives itself */
  server: v.nullable(v.object({ name: v.string(), version: v.string() })),
  /** Sign-in of a person at a server by `url`, without its tokens */
  sign_in: v.object({
    /** `none`: it wants none as far as is known; `needed`: postern mcp login */
    state: v.picklist(["none", "needed", "signed_in"]),
    /** Authorization server; null: nobody is signed in */
    issuer: v.nullable(v.string()),
    scopes: v.array(v.string()),
    /** End of the present token; null: none is known */
    expires_at: v.nullable(v.string()),
    /** true: the token is renewed by itself */
    renewed: v.boolean(),
  }),
  /** The server's advice to models */
  instructions: v.nullable(v.string()),
  tools: v.array(v.object({
    name: v.string(),
    /** Name that the agent calls it by */
    tool: v.string(),
    /** Words of the server */
    description: v.string(),
    /** Claims of the server, which decide nothing */
    claims: v.object({ read_only: v.boolean(), destructive: v.boolean(), idempotent: v.boolean() }),
  })),
  /** Sentences about tools that the server lists and that are not offered, each with the reason */
  left_out: v.array(v.string()),
  /** Tools that are not offered until somebody accepts them */
  changes: v.array(v.object({
    /** Name that the server gives the tool */
    tool: v.string(),
    /** `changed`: another definition was accepted; `new`: the server had no such tool then */
    state: v.picklist(["changed", "new"]),
    /** Digest of the definition, for `accept` */
    digest: v.string(),
    /** Lines that differ from the accepted definition, the whole definition of a new tool; empty in a list */
    difference: v.string(),
  })),
  last_error: v.nullable(v.object({
    code: v.picklist(["mcp_unavailable", "mcp_timeout", "mcp_lost", "mcp_refused", "mcp_invalid"]),
    message: v.string(),
    at: v.string(),
  })),
  /** `[mcp.servers.<name>] sandbox`. Null for a server by `url` */
  sandbox: v.nullable(v.picklist(["off", "auto", "require"])),
  /** Sentence about the rights that its program runs with */
  rights: v.string(),
  /** Start of its session. Null without one */
  since: v.nullable(v.string()),
  /** Time at which its list of tools was read. Null: never */
  listed_at: v.nullable(v.string()),
  /** End of what it wrote to its error output and its log; in a list the last 2,000 characters */
  log_tail: v.string(),
});
/** An MCP server as the API shows it. */
export type McpServerInfo = DeepReadonly<v.InferOutput<typeof mcpServerInfoSchema>>;

/** Records of a server that the configuration does not have any more, as `/v1/mcp-records` shows them. */
export const mcpRecordSchema = v.object({
  /** Name that the server had in `[mcp.servers.<name>]` */
  name: v.string(),
  object: v.literal("mcp_record"),
  /** Number of its tools that were accepted: a server of this name is compared with them */
  accepted_tools: v.number(),
  /** True: a sign-in is kept */
  sign_in: v.boolean(),
});
/** Records that are kept of a server. */
export type KeptMcpRecord = DeepReadonly<v.InferOutput<typeof mcpRecordSchema>>;

/** Instructions of the workspace as they are now, as `/v1/workspace-instructions` shows them. */
export const instructionsSchema = v.object({
  object: v.literal("workspace_instructions"),
  /** `none`: there is no file. `unusable`: it is no text, too large, or not one that tools may read */
  state: v.picklist(["none", "unusable", "untrusted", "changed", "trusted"]),
  /** True for `[agent] workspace_instructions = true` */
  enabled: v.boolean(),
  /** True when runs that begin now are told of them */
  on: v.boolean(),
  /** Why they are off, with what turns them on; null while they are on */
  reason: v.nullable(v.string()),
  /** Path of the file in the workspace, such as `AGENTS.md`; null: there is none */
  file: v.nullable(v.string()),
  path: v.nullable(v.string()),
  /** SHA-256 of the bytes, which trust binds; null: they cannot be read */
  digest: v.nullable(v.string()),
  bytes: v.nullable(v.number()),
  /** Bytes that the system prompt has */
  used_bytes: v.nullable(v.number()),
  text: v.nullable(v.string()),
  /** Digest that is trusted now; null: none is */
  trusted_digest: v.nullable(v.string()),
  /** Lines that changed since it was trusted; null: none was, or nothing changed */
  difference: v.nullable(v.string()),
});
/** Instructions of the workspace as they are now. */
export type InstructionsInfo = DeepReadonly<v.InferOutput<typeof instructionsSchema>>;

/** An allowed node, as `/v1/nodes` shows it. */
export const nodeSchema = v.object({
  id: v.string(),
  object: v.literal("node"),
  connected: v.boolean(),
  /** In a cluster: id of the gateway that holds its link; null while it is away */
  gateway: v.exactOptional(v.nullable(v.string())),
  /** Since when it is connected, or was the last time; null: it never was since the gateway started */
  connected_at: v.nullable(v.string()),
  disconnected_at: v.nullable(v.string()),
  /** Peer address of its newest connection; null: none, or the server does not say */
  address: v.nullable(v.string()),
  /** Version of Postern that the node runs, for example "0.2.0" */
  version: v.nullable(v.string()),
  platform: v.nullable(v.string()),
  calls_in_flight: v.number(),
  tool_count: v.number(),
});
/** An allowed node. */
export type NodeInfo = Readonly<v.InferOutput<typeof nodeSchema>>;

/** A tool of a node. */
const nodeToolSchema = v.object({
  /** On the node */
  name: v.string(),
  /** In the gateway's registry: `node__<id>__<name>` */
  registered_as: v.string(),
  description: v.string(),
  /** Access that the node declares. The gateway decides nothing by it */
  node_access: accessSchema,
  input_schema: v.optional(v.record(v.string(), v.unknown())),
});
/** A tool of a node. */
export type NodeToolInfo = Readonly<Omit<v.InferOutput<typeof nodeToolSchema>, "input_schema">> & {
  readonly input_schema: ObjectJsonSchema | undefined;
};

/** A node with the tools that it last reported. */
export const nodeDetailSchema = v.object({ ...nodeSchema.entries, tools: v.array(nodeToolSchema) });
