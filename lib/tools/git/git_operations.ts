import { joinTaints } from "../../base/taint.ts";
import { defineTool } from "../runtime/define_tool.ts";
import type { ToolContext, ToolServices } from "../runtime/tool.ts";
import type { GitCall } from "./git_call.ts";
import {
  checkFile,
  checkGitInput,
  type GitInput,
  gitInput,
  type GitOp,
  OPERATIONS,
  parseRevision,
  TAKES_FILE,
} from "./git_input.ts";

/** Milliseconds for a few commands, each with a limit of its own: 110 s for a command to a remote */
const TIMEOUT_MS = 240_000;

/** Operations that take files in or out of the repository, so that filters of the repository would change them. */
const CONTENT: ReadonlySet<GitOp> = new Set(["add", "commit", "checkout", "stash", "pull"]);
/** Operations whose output has the content of files. */
const SHOWS_FILES: ReadonlySet<GitOp> = new Set(["diff", "show"]);
const MERGES: ReadonlySet<GitOp> = new Set(["stash", "pull"]);
/** Operations in which git looks for changes of submodules. */
const SUBMODULES: ReadonlySet<GitOp> = new Set(["status", "add", "stash"]);

/**
 * `git_operations`: runs git on a repository of the workspace, and no program that the repository brings.
 * Source: docs/design/paths_and_commands.md "Git"
 */
export const gitOperations = defineTool({
  name: "git_operations",
  description:
    "Runs git on a repository of the workspace. pull fetches and merges. Hooks and other programs of the repository are not run",
  access: "network",
  accessOf: ({ op }) => OPERATIONS[op].access,
  enabled: (config) => config.security.enable_git,
  enabledBy: "[security] enable_git = true",
  needs: ["git", "urls"],
  timeoutMs: () => TIMEOUT_MS,
  input: gitInput,
  check: checkGitInput,
  effects({ path = ".", paths, rev }) {
    const named = rev === undefined ? undefined : parseRevision(rev);
    const files = [...paths ?? [], ...(named?.kind === "file" ? [named.path] : [])];
    return { paths: files.length === 0 ? [path] : files.map((file) => `${path}/${file}`) };
  },
  async bind(input, context) {
    const [call, { boundState }] = await Promise.all([
      openCall(input, { context, writes: false }),
      import("./bound_state.ts"),
    ]);
    return await boundState(call);
  },
  async run(input, context) {
    const writes = OPERATIONS[input.op].access !== "read";
    const [call, { runOperation }] = await Promise.all([
      openCall(input, { context, writes }),
      import("./run_operation.ts"),
    ]);
    const result = await runOperation(input.op, call);
    return SHOWS_FILES.has(input.op) ? result : { ...result, reads: [], lists: [input.path ?? "."] };
  },
});

type CallContext =
  & Pick<
    ToolContext,
    "workspaceRoot" | "allowSensitiveFileReads" | "allowSensitiveFileWrites" | "config" | "signal"
  >
  & Partial<Pick<ToolContext, "taint">>
  & { readonly services: Pick<ToolServices, "git" | "urls"> };

/** Opens the repository that the call names. @throws {ToolError} as `Git.open` */
async function openCall(
  input: GitInput,
  { context, writes }: { readonly context: CallContext; readonly writes: boolean },
): Promise<GitCall> {
  const { op, path = "." } = input;
  const { config, signal, services: { git, urls } } = context;
  const { credentials } = config.security.git;
  const { access } = OPERATIONS[op];
  const repository = await git.open({
    folder: path,
    files: TAKES_FILE.has(op),
    scope: {
      workspaceRoot: context.workspaceRoot,
      forbiddenPaths: config.autonomy.forbidden_paths,
      sandbox: config.security.shell.sandbox,
      credentials,
      taint: access === "network" ? joinTaints(context.taint, ["git_operations"]) : context.taint,
    },
    use: {
      content: CONTENT.has(op),
      merges: MERGES.has(op),
      network: access === "network",
      submodules: SUBMODULES.has(op),
    },
    writes,
    signal,
  });
  checkFile(input, repository.file);
  return {
    input,
    repository,
    allowSensitiveReads: context.allowSensitiveFileReads,
    allowSensitiveWrites: context.allowSensitiveFileWrites,
    checkUrl: (url) => urls.check(url, config.url_access, { signal }),
    allowCredentials: credentials,
  };
}
