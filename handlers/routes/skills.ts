import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { skillDetailSchema, skillSchema, skillTestSchema } from "../../lib/extensions/extension_views.ts";
import { callerOf } from "../door.ts";
import type { RequestContext, Route } from "../route.ts";
import { refusing } from "../wire/http_errors.ts";
import { listSchema, textQuery } from "../wire/lists.ts";
import { readJson, strictRoute } from "../wire/read_json.ts";
import { jsonReply } from "../wire/reply.ts";

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
export const skillsRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/skills",
  access: "admin",
  summary: "Skills, installed and found, and why each is on or off",
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({ ...listSchema(skillSchema).entries, problems: v.array(v.string()) }),
  },
  async handler(_request, context) {
    const { skills, problems } = await (await context.services.skills()).list();
    const end = { has_more: false, last_id: skills.at(-1)?.name ?? null };
    return jsonReply(context, 200, { object: "list", data: skills, ...end, problems });
  },
});

/** GET /v1/skills/:name: one skill with its text. */
export const skillRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/skills/:name",
  access: "admin",
  summary: "One skill, with the text of its files and what changed since it was trusted",
  reply: { status: 200, type: "application/json", schema: skillDetailSchema },
  errors: ["conflict"],
  handler: (_request, context) =>
    answer(context, async () => await (await context.services.skills()).show(nameOf(context))),
});

/** GET /v1/skills/:name/test: checks a skill strictly. */
export const testSkillRoute: Route = strictRoute({
  method: "GET",
  path: "/v1/skills/:name/test",
  access: "admin",
  summary: "Check a skill strictly: every deviation from the format, and links to files that are not there",
  reply: { status: 200, type: "application/json", schema: skillTestSchema },
  errors: ["conflict"],
  handler: (_request, context) =>
    answer(context, async () => {
      const tools = context.services.tools.list().map(({ name }) => name);
      return await (await context.services.skills()).test(nameOf(context), tools);
    }),
});

/** POST /v1/skills: installs a skill from a packed folder or an archive. */
export const installSkillRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/skills",
  access: "admin",
  summary: "Install a skill from an archive: tar, tar.gz or zip",
  rawBody: { type: BYTES, maxBytes: MAX_ARCHIVE_BYTES },
  query: {
    name: {
      description: "Name of the skill",
      required: true,
      schema: { type: "string", minLength: 1, maxLength: NAME_CHARACTERS },
    },
    from: textQuery("Path or address of the archive, for the record"),
    kind: {
      description: "What was packed",
      schema: { type: "string", enum: ["folder", "archive"], default: "archive" },
    },
  },
  reply: { status: 201, type: "application/json", schema: skillSchema },
  errors: ["conflict"],
  idempotency: "harmless",
  handler: (request, context) =>
    answer(context, async () => {
      const type = request.headers.get("content-type")?.split(";")[0]?.trim().toLowerCase();
      if (type !== BYTES) {
        throw refuse("unsupported_media_type", `Cannot read the request body: send the archive as ${BYTES}`);
      }
      const bytes = await context.body();
      const { query, signal } = context;
      const kind = query.get("kind") ?? "archive";
      if (kind !== "folder" && kind !== "archive") {
        throw refuse("invalid_request", 'Cannot accept "kind": it is "folder" or "archive"', { param: "kind" });
      }
      const name = query.get("name") ?? "";
      if (name === "" || name.length > NAME_CHARACTERS) {
        const reason = `give "name" with 1 to ${NAME_CHARACTERS} characters`;
        throw refuse("invalid_request", `Cannot install a skill without its name: ${reason}`, { param: "name" });
      }
      const from = (query.get("from") ?? "").slice(0, SOURCE_CHARACTERS);
      const skills = await context.services.skills();
      return await skills.install({ kind, bytes, from }, { name, by: callerOf(context, "http"), signal });
    }, 201),
});

/** POST /v1/skill-installations: installs a skill from a git repository. */
export const installSkillFromGitRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/skill-installations",
  access: "admin",
  summary: "Install a skill from a git repository",
  body: installSchema,
  reply: { status: 201, type: "application/json", schema: skillSchema },
  errors: ["conflict", "provider_error"],
  idempotency: "harmless",
  handler: (request, context) =>
    answer(context, async () => {
      const { name, url } = await readJson(request, context, installSchema);
      const skills = await context.services.skills();
      const { signal } = context;
      return await skills.install({ kind: "git", url }, { name, by: callerOf(context, "http"), signal });
    }, 201),
});

/** POST /v1/skills/:name/trust: trusts exactly this content. */
export const trustSkillRoute: Route = strictRoute({
  method: "POST",
  path: "/v1/skills/:name/trust",
  access: "admin",
  summary: "Trust a skill with the content of this digest",
  body: trustSchema,
  reply: { status: 200, type: "application/json", schema: skillSchema },
  errors: ["conflict"],
  idempotency: "harmless",
  handler: (request, context) =>
    answer(context, async () => {
      const { digest: looked, before } = await readJson(request, context, trustSchema);
      const skills = await context.services.skills();
      return await skills.trust(nameOf(context), { digest: looked, before, by: callerOf(context, "http") });
    }),
});

/** DELETE /v1/skills/:name/trust: takes the trust back. */
export const untrustSkillRoute: Route = strictRoute({
  method: "DELETE",
  path: "/v1/skills/:name/trust",
  access: "admin",
  summary: "Take the trust in a skill back",
  reply: { status: 200, type: "application/json", schema: skillSchema },
  errors: ["conflict", "request_timeout"],
  handler: (_request, context) =>
    answer(context, async () => {
      const skills = await context.services.skills();
      return await skills.untrust(nameOf(context), { by: callerOf(context, "http") });
    }),
});

/** DELETE /v1/skills/:name: removes an installed skill. */
export const removeSkillRoute: Route = strictRoute({
  method: "DELETE",
  path: "/v1/skills/:name",
  access: "admin",
  summary: "Remove an installed skill",
  reply: { status: 204 },
  errors: ["conflict", "request_timeout"],
  handler: async (_request, context) => {
    const skills = await context.services.skills();
    await refusing(() => skills.remove(nameOf(context), { by: callerOf(context, "http") }));
    return new context.Response(null, { status: 204 });
  },
});

function nameOf({ params }: RequestContext): string {
  return params["name"] ?? "";
}

async function answer(context: RequestContext, work: () => Promise<unknown>, status = 200): Promise<Response> {
  return jsonReply(context, status, await refusing(work));
}
