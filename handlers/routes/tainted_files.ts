import { relative, resolve } from "node:path";
import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import type { TaintedFile } from "../../lib/guard/tainted_files.ts";
import { defineRoute } from "../define_route.ts";
import { LIMIT_QUERY, listSchema, placedListReply, textQuery } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

const MAX_PATH_CHARACTERS = 4096;

const taintedFileSchema = v.object({
  object: v.literal("tainted_file"),
  /** Relative to the workspace; absolute for a file outside it */
  path: v.string(),
  /** Origins of the outside content that it was made from */
  taint: v.array(v.string()),
  marked_at: v.string(),
});

/** GET /v1/tainted-files: files that outside content reached. */
export const taintedFilesRoute = defineRoute({
  method: "GET",
  path: "/v1/tainted-files",
  access: "approve",
  strict: true,
  needs: ["taintedFiles", "workspaceRoot"],
  summary: "Files that were made from outside content: a run that reads one asks before it writes",
  query: {
    limit: LIMIT_QUERY,
    after: textQuery("Only those whose path comes after this one, the last_id of the list before"),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(taintedFileSchema) },
  async handle({ taintedFiles, workspaceRoot }, { query: { limit, after = "" } }) {
    const later = (await taintedFiles.list()).filter(({ path }) => path > after);
    const page = later.slice(0, limit);
    const lastId = page.at(-1)?.path ?? null;
    const data = page.map((file) => shown(file, workspaceRoot));
    return placedListReply(data, { hasMore: later.length > page.length, lastId });
  },
});

/** DELETE /v1/tainted-files: takes the mark from a file, or from every file below a folder. The files stay. */
export const clearTaintRoute = defineRoute({
  method: "DELETE",
  path: "/v1/tainted-files",
  access: "approve",
  strict: true,
  needs: ["taintedFiles", "workspaceRoot"],
  summary: "Vouch for a file, or for every file below a folder: reading them taints no run any more",
  query: {
    path: {
      description: "Relative to the workspace, or absolute",
      required: true,
      schema: { type: "string", minLength: 1, maxLength: MAX_PATH_CHARACTERS },
      read: readPath,
    },
  },
  reply: { status: 200, type: "application/json", schema: v.object({ path: v.string(), cleared: v.number() }) },
  errors: ["not_found"],
  async handle({ taintedFiles, workspaceRoot }, { query: { path }, caller }) {
    const cleared = await taintedFiles.clear(resolve(workspaceRoot, path), caller);
    if (cleared === 0) {
      const where = '"postern taint list" and GET /v1/tainted-files show those there are';
      throw refuse("not_found", `Cannot find a tainted file at this path: ${where}`);
    }
    return jsonReply(200, { path, cleared });
  },
});

/** @throws {HttpError} 400 invalid_request */
function readPath(text: string | null, param: string): string {
  if (text !== null && text !== "" && text.length <= MAX_PATH_CHARACTERS && !text.includes("\0")) return text;
  const message = `Cannot clear without a path: give "path" with 1 to ${MAX_PATH_CHARACTERS} characters`;
  throw refuse("invalid_request", message, { param });
}

function shown({ path, ...file }: TaintedFile, workspaceRoot: string) {
  const inside = relative(workspaceRoot, path);
  return { object: "tainted_file", ...file, path: inside.startsWith("..") ? path : inside || "." };
}
