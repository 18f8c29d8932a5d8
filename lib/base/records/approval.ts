import * as v from "valibot";
import { formSchema } from "./elicitation.ts";

/** States of a question to a person: `pending` until it is answered, expires or its run ends. */
export const APPROVAL_STATUSES = ["pending", "approved", "denied", "expired", "cancelled"] as const;
/** State of an approval. */
export type ApprovalStatus = (typeof APPROVAL_STATUSES)[number];

/** How far an answer reaches: this call alone, the same call in this run, or the same call for good. */
export const REMEMBER = ["once", "run", "always"] as const;
/** Reach of an answer. */
export type Remember = (typeof REMEMBER)[number];

/** Kinds of approvals: of a call before it runs, and of what a running call asks a person (elicitation). */
export const APPROVAL_KINDS = ["call", "elicitation"] as const;

/** Parts of an elicitation that its approval and its event have. Absent for a call. */
export const elicitationEntries = {
  /** Name of the MCP server that asks; absent: the agent asks, or the program that mounts the gateway */
  server: v.optional(v.string()),
  /** True when the agent asks, by `ask_user` */
  agent: v.optional(v.literal(true)),
  /** Words to the person; known secrets masked */
  message: v.optional(v.string()),
  /** Form that the person fills in, as JSON Schema; null: the person opens `url` */
  schema: v.optional(v.nullable(formSchema)),
  /** Address that the person opens, whole; null: the person fills in `schema` */
  url: v.optional(v.nullable(v.string())),
} as const;

/** Widest thing that a call does, see `Access` in lib/guard/policy.ts. */
export const accessSchema = v.picklist(["read", "state", "write", "network"]);

/** Form of an approval's id. */
export const APPROVAL_ID = /^apr_[0-9a-z]{1,64}$/;
/** Form of a remembered rule's id. */
export const RULE_ID = /^rule_[0-9a-f]{32}$/;
/** Matches of a remembered answer: the exact call, the tool's changes in a folder, or a command with its first argument. */
export const RULE_MATCHES = ["call", "folder", "command"] as const;
/** Kind of match of a remembered answer. */
export type RuleMatchKind = (typeof RULE_MATCHES)[number];

/** A rule that an answer can store. */
export const ruleOfferSchema = v.object({
  remember: v.picklist(["run", "always"]),
  match: v.picklist(RULE_MATCHES),
  /** The rule that an approval then stores, word for word */
  text: v.string(),
});
/** Rule that an answer can store. */
export type RuleOffer = v.InferOutput<typeof ruleOfferSchema>;

const time = v.string();

/** Something beside the input that an answer is bound to: a change of it makes the answer count for nothing. */
export const boundStateSchema = v.object({
  /**
   * `file`: one that the call changes or its arguments name; `files`: what git would take from a folder; `index`: git's index;
   * `head`: the checked-out commit; `commit`: what a name stands for; `remote`: the address of a remote; `plugin`: the plugin that answers;
   * `login`: site that a person signed the browser in at; `tool`: what an MCP server says of its tool
   */
  kind: v.picklist(["file", "files", "index", "head", "commit", "remote", "plugin", "login", "tool"]),
  /** Path, or name of the branch, commit or remote */
  name: v.string(),
  /** SHA-256 of the content or list, hexadecimal; null: there is none */
  sha256: v.nullable(v.string()),
});
/** State beside the input that an answer is bound to. */
export type BoundState = v.InferOutput<typeof boundStateSchema>;

/** How the programs that a call starts are contained, in a record or an answer of the gateway. */
export const containmentSchema = v.object({
  /** `contained`: in bubblewrap; `uncontained`: with the rights of the gateway; `refused`: none is started */
  kind: v.picklist(["contained", "uncontained", "refused"]),
  /** Sentence that says how the programs are contained, with the reason */
  text: v.string(),
});

/** Change of one file that a call would make, from the very bytes that the answer is bound to. Known secrets are masked. */
export const describedChangeSchema = v.object({
  /** As the call names it */
  path: v.string(),
  kind: v.picklist(["create", "change", "delete", "move"]),
  /** With kind `move`: where the file is now */
  from: v.optional(v.string()),
  /** Permission bits that the file gets; absent: as files are made, or as it has them */
  mode: v.optional(v.number()),
  /** Lines that come */
  added: v.number(),
  /** Lines that go */
  removed: v.number(),
  /** Lines of the unified difference, cut; null: `note` says why it is not shown */
  diff: v.nullable(v.string()),
  /** Lines of the difference that are not in `diff` */
  left_out: v.number(),
  note: v.optional(v.string()),
});
/** Change of one file that a call would make. */
export type DescribedChange = v.InferOutput<typeof describedChangeSchema>;

/** Sources of a denial: a person, the program, a remembered answer, nobody who could be asked or answered, the policy, a halt. */
export const DENIED_BY = ["person", "program", "rule", "nobody", "policy", "halt"] as const;
/** Source of a denial. */
export type DeniedBy = (typeof DENIED_BY)[number];

/** Work that a question comes from. */
export const askerSchema = v.object({
  /** Door that it came by, such as `cron`; `direct`: the caller makes the call without an agent */
  via: v.string(),
  direct: v.optional(v.boolean()),
  conversation_id: v.nullable(v.string()),
  parent_id: v.nullable(v.string()),
  /** Message that led to the work, cut; known secrets masked. null: there is none */
  message: v.nullable(v.string()),
});

/** A question to a person, as `/v1/approvals` shows it (docs/design/policy.md "Approvals"). Times are ISO 8601. */
export const approvalSchema = v.object({
  id: v.string(),
  object: v.literal("approval"),
  status: v.picklist(APPROVAL_STATUSES),
  /** Absent in records of earlier versions: `call` */
  kind: v.optional(v.picklist(APPROVAL_KINDS)),
  ...elicitationEntries,
  tool: v.string(),
  access: accessSchema,
  /** Input that the tool would get, with known secrets masked. */
  input: v.unknown(),
  /** SHA-256 of the whole input's canonical JSON, secrets included; in a browser that is signed in, of its digest and the logins */
  input_digest: v.string(),
  /** Why the policy asks, with what would allow the call without asking */
  reason: v.string(),
  /** The policy's rule, such as `level:supervised/write` */
  rule: v.string(),
  workspace: v.string(),
  /** Files the call would change, as they were when it was asked; null: there was none */
  files: v.array(v.object({ path: v.string(), sha256: v.nullable(v.string()) })),
  /** Files as the call would leave them; absent: it changes none by itself, or nothing is known of it */
  changes: v.optional(v.array(describedChangeSchema)),
  /** Why the call would fail as things stand; absent: nothing speaks against it */
  fails: v.optional(v.string()),
  /** Commands of a line of bash, as they stand in it; absent: it is no line of several */
  commands: v.optional(v.array(v.string())),
  /** Work that asks; absent in records of earlier versions */
  asker: v.optional(askerSchema),
  /** True: an answer may bring another input. Absent: the call is made as it stands */
  editable: v.optional(v.literal(true)),
  /** The call as it was asked about, where the answer brought another input; absent: it is as it was */
  edited: v.optional(v.object({ input: v.unknown(), digest: v.string() })),
  /** Beside `files`, what else the answer is bound to; absent in records of earlier versions */
  bound: v.optional(v.array(boundStateSchema)),
  /** How the programs it would start are contained; null: it starts none. Absent in records of earlier versions */
  containment: v.optional(v.nullable(containmentSchema)),
  /** SHA-256 over all that the answer is bound to: tool, input, workspace, schema, executable, files, `bound` and containment */
  digest: v.string(),
  run_id: v.string(),
  call_id: v.string(),
  /** Id of the request that made the call, as `x-request-id` has it; null: none did. Absent in records of earlier versions */
  request_id: v.optional(v.nullable(v.string())),
  /** Id of the token that made the call */
  requested_by: v.nullable(v.string()),
  created_at: time,
  expires_at: time,
  /** Rule that `remember: always` would store, word for word. Null when it would be refused. */
  always_rule: v.nullable(v.string()),
  /** Every rule that an answer may store; empty where none is. Absent in records of earlier versions: then the exact call */
  offers: v.optional(v.array(ruleOfferSchema)),
  answered_at: v.nullable(time),
  /** Id of the token that answered. `program`: the program around the gateway */
  answered_by: v.nullable(v.string()),
  note: v.nullable(v.string()),
  remember: v.nullable(v.picklist(REMEMBER)),
  /** The rule that the answer stored */
  rule_id: v.nullable(v.string()),
  /** When the call went through on it: an approval lets one call through */
  used_at: v.nullable(time),
});
/** Approval as the store and `/v1/approvals` have it. */
export type Approval = v.InferOutput<typeof approvalSchema>;

/** Words of an approval for the person who answers: each door shows these. What nobody sees is spelled out, such as `\u202e`. */
export const approvalDescriptionSchema = v.object({
  /** Sentence such as `The agent wants to create plan.md`; absent in events of earlier versions */
  title: v.optional(v.string()),
  /** Tool, access and workspace */
  call: v.string(),
  /** Lines about the work that asks, and the message that led to it; absent in events of earlier versions */
  asker: v.optional(v.array(v.string())),
  /** Input: as JSON, or of a change of files the difference. A long one is cut, with its length, its digest and where it is whole */
  input: v.string(),
  reason: v.string(),
  /** Sentence that says how the programs are contained; null: the call starts none, or nothing is known of it */
  containment: v.nullable(v.string()),
  /** Line for each file that the call would change */
  files: v.array(v.string()),
  /** Line for each further state that the answer is bound to */
  bound: v.array(v.string()),
});
/** Words of an approval for the person who answers. */
export type ApprovalDescription = v.InferOutput<typeof approvalDescriptionSchema>;

/** An answer that was remembered: it stands for the calls that `text` says, in the same workspace. Times are ISO 8601. */
export const approvalRuleSchema = v.object({
  id: v.string(),
  object: v.literal("approval_rule"),
  decision: v.picklist(["approve", "deny"]),
  scope: v.picklist(["run", "always"]),
  /** With scope `run`: the run it counts in */
  run_id: v.nullable(v.string()),
  tool: v.string(),
  workspace: v.string(),
  /** Match of the rule, which says what calls it stands for; records of earlier versions: the exact call */
  match: v.optional(v.picklist(RULE_MATCHES), "call"),
  /** Input of the call that was asked about; known secrets in it are masked */
  input: v.unknown(),
  /** With match `call`: SHA-256 of the input's canonical JSON, what a call is compared by. Else null */
  input_digest: v.nullable(v.string()),
  /** With match `folder`: absolute path of the folder */
  folder: v.optional(v.nullable(v.string()), null),
  /** With match `command`: the program and its first argument */
  command: v.optional(v.nullable(v.tuple([v.string(), v.string()])), null),
  /** With match `folder` or `command`: the input's `op`; null where it has none */
  op: v.optional(v.nullable(v.string()), null),
  /** With match `folder` or `command`: the access of the calls it stands for. With match `call`: `network` for a command that reaches it */
  access: v.optional(v.nullable(accessSchema), null),
  /** The whole rule as a sentence */
  text: v.string(),
  created_at: time,
  created_by: v.nullable(v.string()),
  approval_id: v.string(),
});
/** Remembered answer as the store and `/v1/approvals` have it. */
export type ApprovalRule = v.InferOutput<typeof approvalRuleSchema>;
