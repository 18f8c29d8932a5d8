import { lineDifference } from "../../base/line_difference.ts";
import type { DescribedChange } from "../../base/records/approval.ts";
import { ToolError } from "../../base/errors.ts";
import type { FileChange, Files, FileScope } from "../../system/files/files.ts";
import { decodeText } from "../files/read_text.ts";
import { bindFiles } from "./bind_call.ts";
import type { PreparedCall, ScreenContext, Tool, ToolContext } from "./tool.ts";
import type { CallBinding, CallPreview } from "./tool_call.ts";

/** Bytes of a file up to which its difference is shown. */
const MAX_FILE_BYTES = 4_194_304;
/** Characters of the differences of one call that its question keeps. */
const MAX_DIFF = 60_000;

/** Parts of a preview. */
export interface PreviewOptions {
  readonly binding: Pick<CallBinding, "versions">;
  readonly context: ScreenContext;
  readonly signal: AbortSignal;
  readonly redact: (text: string) => string;
}

/**
 * Returns what a call would do, for the person who is asked. A tool of files itself runs, with a door to files that changes nothing: what
 * it hands over are the very bytes that it would write, over the versions that the answer is bound to.
 */
export async function previewChanges(
  tool: Tool,
  prepared: PreparedCall,
  { binding, context, signal, redact }: PreviewOptions,
): Promise<CallPreview> {
  const isPlain = tool.source === "builtin" && prepared.access === "write" && tool.needs.length === 1 &&
    tool.needs[0] === "files";
  const parts = prepared.effects.line?.parts ?? [];
  if (!isPlain) return parts.length < 2 ? {} : { commands: parts.map(({ text }) => redact(text)) };
  const { files } = context.services;
  const planned: PlannedFile[] = [];
  const recording: Files = {
    ...files,
    async change(changes, scope) {
      for (const change of changes) planned.push(await plan(change, { files, scope, context }));
    },
  };
  try {
    const services = { ...context.services, files: bindFiles(recording, binding.versions) };
    // Tools that need nothing but files read no more of their context
    await prepared.run({ ...context, services, signal } as ToolContext);
    return { changes: toShown(joinMoves(planned), redact) };
  } catch (error) {
    if (error instanceof ToolError) return { fails: redact(error.message) };
    throw error;
  }
}

/** File as it is and as it will be. `undefined`: there is none. A text says why the content is not shown. */
interface PlannedFile {
  readonly path: string;
  readonly from?: string;
  readonly mode?: number | undefined;
  readonly before: Uint8Array | string | undefined;
  readonly after: Uint8Array | string | undefined;
}

async function plan(
  change: FileChange,
  { files, scope, context }: { readonly files: Files; readonly scope: FileScope; readonly context: ScreenContext },
): Promise<PlannedFile> {
  const { path, expected } = change;
  const before = expected === undefined ? undefined : await contentOf(path, expected, {
    files,
    // Content that the agent may not read is not told to the readers of its run either
    scope: { ...scope, allowSensitive: scope.allowSensitive && context.allowSensitiveFileReads },
  });
  if (change.kind === "remove") return { path, before, after: undefined };
  const after = change.content instanceof Uint8Array ? change.content : "it comes piece by piece";
  return { path, before, after, mode: change.mode };
}

async function contentOf(
  path: string,
  expected: string,
  { files, scope }: { readonly files: Files; readonly scope: FileScope },
): Promise<Uint8Array | string> {
  try {
    const { file } = await files.inspect(path, scope, { maxBytes: MAX_FILE_BYTES });
    if (file?.version === expected) return file.content ?? new Uint8Array(0);
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    if (error.code === "file_too_large") return `the file has more than ${MAX_FILE_BYTES} bytes`;
    if (error.code === "path_sensitive") return "the file may hold credentials";
    throw error;
  }
  throw new ToolError("path_changed", "it changed while it was looked at");
}

/** Makes one change of a file that is written at its new place and removed at its old one. */
function joinMoves(planned: readonly PlannedFile[]): readonly PlannedFile[] {
  const joined: PlannedFile[] = [];
  for (const file of planned) {
    const last = joined.at(-1);
    const isMove = file.after === undefined && last?.mode !== undefined && last.before === undefined;
    if (isMove) joined.splice(-1, 1, { ...last, from: file.path, before: file.before });
    else joined.push(file);
  }
  return joined;
}

/** Shows every file: a patch, the one call that changes several, bounds them by itself. */
function toShown(files: readonly PlannedFile[], redact: PreviewOptions["redact"]): DescribedChange[] {
  let left = MAX_DIFF;
  return files.map((file): DescribedChange => {
    const { path, from, mode, before, after } = file;
    const kind = from !== undefined
      ? "move"
      : before === undefined
      ? "create"
      : after === undefined
      ? "delete"
      : "change";
    const about = {
      path: redact(path),
      kind,
      ...(from === undefined ? {} : { from: redact(from) }),
      ...(mode === undefined ? {} : { mode }),
    } as const;
    const none = { added: 0, removed: 0, diff: null, left_out: 0 };
    const [old, now] = [textOf(before, redact), textOf(after, redact)];
    if ("why" in old) return { ...about, ...none, note: old.why };
    if ("why" in now) return { ...about, ...none, note: now.why };
    const isSame = old.text === now.text;
    const lines = isSame ? [] : lineDifference(old.text, now.text, { maxBytes: Number.MAX_SAFE_INTEGER }).split("\n");
    const count = (sign: string) => lines.filter((line) => line.startsWith(sign)).length;
    const kept: string[] = [];
    let whole = 0;
    for (const line of lines) {
      if (line.length >= left) {
        // A person sees the beginning of the first line that does not fit; it counts as left out
        if (left > 0) kept.push(`${line.slice(0, left)} [${line.length - left} more characters]`);
        left = 0;
        break;
      }
      left -= line.length + 1;
      whole++;
      kept.push(line);
    }
    const isHidden = isSame && before !== undefined && after !== undefined && !isEqual(before, after);
    return {
      ...about,
      ...{ added: count("+"), removed: count("-"), diff: kept.join("\n"), left_out: lines.length - whole },
      ...(isHidden ? { note: "it differs where known secrets are, which nobody is shown" } : {}),
    };
  });
}

function textOf(
  content: PlannedFile["before"],
  redact: PreviewOptions["redact"],
): { readonly text: string } | { readonly why: string } {
  if (content === undefined) return { text: "" };
  if (typeof content === "string") return { why: content };
  const text = content.length > MAX_FILE_BYTES ? undefined : decodeText(content);
  // A secret over several lines is one text before the lines have their signs
  return text === undefined ? { why: `${content.length} bytes that are no text to show` } : { text: redact(text) };
}

function isEqual(before: Uint8Array | string, after: Uint8Array | string): boolean {
  return typeof before !== "string" && typeof after !== "string" && Buffer.compare(before, after) === 0;
}
