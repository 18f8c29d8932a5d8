import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { skillDetailSchema, skillSchema, skillTestSchema } from "../../lib/base/records/extension_views.ts";
import { defineRoute } from "../define_route.ts";
import { refusing } from "../wire/http_errors.ts";
import { listSchema, textQuery } from "../wire/lists.ts";
import { emptyReply, jsonReply, type Reply } from "../wire/reply.ts";

/** Bytes of a packed skill, in place of `max_request_bytes`. Source: docs/design/skills.md "Installing" */
const MAX_ARCHIVE_BYTES = 67_108_864;
const BYTES = "application/octet-stream";
const NAME_CHARACTERS = 256;
const SOURCE_CHARACTERS = 2_048;

const digest = v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/));

const installSchema = v.strictObject({
  name: v.pipe(v.string(), v.minLength(1), v.maxLength(NAME_CHARACTERS)),
  /** URL of a git repository, with `#` and a branch, tag or commit if you like */
  url: v.pipe(v.string(), v.minLength(1), v.maxLength(SOURCE_CHARACTERS)),
});

const trustSchema = v.strictObject({
  /** Digest of the content that was looked at */
  digest,
  /** Digest that was trusted when it was looked at; null: none was. Absent: whatever was */
  before: v.optional(v.nullable(digest)),
});

/** GET /v1/skills: all skills, and why each is on or off. */
export const skillsRoute = defineRoute({
  method: "GET",
  path: "/v1/skills",
  access: "admin",
  strict: true,
  needs: ["skills"],
  summary: "Skills, installed and found, and why each is on or off",
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({ ...listSchema(skillSchema).entries, problems: v.array(v.string()) }),
  },
  async handle(parts) {
    const { skills, problems } = await (await parts.skills()).list();
    const end = { has_more: false, last_id: skills.at(-1)?.name ?? null };
    return jsonReply(200, { object: "list", data: skills, ...end, problems });
  },
});

/** GET /v1/skills/:name: one skill with its text. */
export const skillRoute = defineRoute({
  method: "GET",
  path: "/v1/skills/:name",
  access: "admin",
  strict: true,
  needs: ["skills"],
  summary: "One skill, with the text of its files and what changed since it was trusted",
  reply: { status: 200, type: "application/json", schema: skillDetailSchema },
  errors: ["conflict"],
  handle: (parts, { params }) => answer(async () => await (await parts.skills()).show(params.name)),
});

/** GET /v1/skills/:name/test: checks a skill strictly. */
export const testSkillRoute = defineRoute({
  method: "GET",
  path: "/v1/skills/:name/test",
  access: "admin",
  strict: true,
  needs: ["tools", "skills"],
  summary: "Check a skill strictly: every deviation from the format, and links to files that are not there",
  reply: { status: 200, type: "application/json", schema: skillTestSchema },
  errors: ["conflict"],
  handle: (parts, { params }) =>
    answer(async () => {
      const tools = parts.tools.list().map(({ name }) => name);
      return await (await parts.skills()).test(params.name, tools);
    }),
});

/** POST /v1/skills: installs a skill from a packed folder or an archive. */
export const installSkillRoute = defineRoute({
  method: "POST",
  path: "/v1/skills",
  access: "admin",
  strict: true,
  needs: ["skills"],
  summary: "Install a skill from an archive: tar, tar.gz or zip",
  rawBody: { type: BYTES, maxBytes: MAX_ARCHIVE_BYTES, what: "archive" },
  query: {
    name: {
      description: "Name of the skill",
      required: true,
      schema: { type: "string", minLength: 1, maxLength: NAME_CHARACTERS },
      read: readName,
    },
    from: textQuery("Path or address of the archive, for the record"),
    kind: {
      description: "What was packed",
      schema: { type: "string", enum: ["folder", "archive"], default: "archive" },
      read: readKind,
    },
  },
  reply: { status: 201, type: "application/json", schema: skillSchema },
  errors: ["conflict"],
  idempotency: "harmless",
  handle: (parts, { query, body, caller, signal }) =>
    answer(async () => {
      const { name, kind } = query;
      const from = (query.from ?? "").slice(0, SOURCE_CHARACTERS);
      const skills = await parts.skills();
      return await skills.install({ kind, bytes: body, from }, { name, by: caller, signal });
    }, 201),
});

/** POST /v1/skill-installations: installs a skill from a git repository. */
export const installSkillFromGitRoute = defineRoute({
  method: "POST",
  path: "/v1/skill-installations",
  access: "admin",
  strict: true,
  needs: ["skills"],
  summary: "Install a skill from a git repository",
  body: installSchema,
  reply: { status: 201, type: "application/json", schema: skillSchema },
  errors: ["conflict", "provider_error"],
  idempotency: "harmless",
  handle: (parts, { body, caller, signal }) =>
    answer(async () => {
      const { name, url } = body;
      const skills = await parts.skills();
      return await skills.install({ kind: "git", url }, { name, by: caller, signal });
    }, 201),
});

/** POST /v1/skills/:name/trust: trusts exactly this content. */
export const trustSkillRoute = defineRoute({
  method: "POST",
  path: "/v1/skills/:name/trust",
  access: "admin",
  strict: true,
  needs: ["skills"],
  summary: "Trust a skill with the content of this digest",
  body: trustSchema,
  reply: { status: 200, type: "application/json", schema: skillSchema },
  errors: ["conflict"],
  idempotency: "harmless",
  handle: (parts, { params, body, caller }) =>
    answer(async () => {
      const { digest: looked, before } = body;
      const skills = await parts.skills();
      return await skills.trust(params.name, { digest: looked, before, by: caller });
    }),
});

/** DELETE /v1/skills/:name/trust: takes the trust back. */
export const untrustSkillRoute = defineRoute({
  method: "DELETE",
  path: "/v1/skills/:name/trust",
  access: "admin",
  strict: true,
  needs: ["skills"],
  summary: "Take the trust in a skill back",
  reply: { status: 200, type: "application/json", schema: skillSchema },
  errors: ["conflict", "request_timeout"],
  handle: (parts, { params, caller }) =>
    answer(async () => {
      const skills = await parts.skills();
      return await skills.untrust(params.name, { by: caller });
    }),
});

/** DELETE /v1/skills/:name: removes an installed skill. */
export const removeSkillRoute = defineRoute({
  method: "DELETE",
  path: "/v1/skills/:name",
  access: "admin",
  strict: true,
  needs: ["skills"],
  summary: "Remove an installed skill",
  reply: { status: 204 },
  errors: ["conflict", "request_timeout"],
  handle: async (parts, { params, caller }) => {
    const skills = await parts.skills();
    await refusing(() => skills.remove(params.name, { by: caller }));
    return emptyReply();
  },
});

/** @throws {HttpError} 400 invalid_request */
function readName(text: string | null, param: string): string {
  if (text !== null && text !== "" && text.length <= NAME_CHARACTERS) return text;
  const reason = `give "name" with 1 to ${NAME_CHARACTERS} characters`;
  throw refuse("invalid_request", `Cannot install a skill without its name: ${reason}`, { param });
}

/** @throws {HttpError} 400 invalid_request */
function readKind(text: string | null, param: string): "folder" | "archive" {
  if (text === null) return "archive";
  if (text === "folder" || text === "archive") return text;
  throw refuse("invalid_request", 'Cannot accept "kind": it is "folder" or "archive"', { param });
}

async function answer(work: () => Promise<unknown>, status = 200): Promise<Reply> {
  return jsonReply(status, await refusing(work));
}
