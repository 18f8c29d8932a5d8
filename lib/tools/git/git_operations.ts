import { defineTool } from "../runtime/define_tool.ts";
import { checkGitInput, gitInput, type GitOp, OPERATIONS } from "./git_input.ts";
import { parseRevision } from "./revision.ts";

/** A call is a handful of commands, each with a limit of its own, the one to the remote with 110 s */
const TIMEOUT_MS = 240_000;

/** Takes files in or out, so that the repository's filters would have a say. */
const CONTENT: ReadonlySet<GitOp> = new Set(["add", "commit", "checkout", "stash", "pull"]);
const MERGES: ReadonlySet<GitOp> = new Set(["stash", "pull"]);

/** `git_operations`: git on a repository of the workspace, which runs nothing of its own (DESIGN.md section 8, "Processes"). */
export const gitOperations = defineTool({
  name: "git_operations",
  description:
    "Runs git on a repository of the workspace: looks at it, adds, commits, switches branches, stashes, pulls (fetch and merge) and pushes. Hooks and other programs of the repository are not run",
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
  async run(input, context) {
    const { op, path = "." } = input;
    const { config, signal, services: { git, urls } } = context;
    const { credentials } = config.security.git;
    const { access } = OPERATIONS[op];
    const repository = await git.open({
      folder: path,
      scope: {
        workspaceRoot: context.workspaceRoot,
        forbiddenPaths: config.autonomy.forbidden_paths,
        sandbox: config.security.shell.sandbox,
        credentials,
      },
      use: { content: CONTENT.has(op), merges: MERGES.has(op), network: access === "network" },
      writes: access !== "read",
      signal,
    });
    const { runOperation } = await import("./run_operation.ts");
    return await runOperation(op, {
      input,
      repository,
      allowSensitiveReads: context.allowSensitiveFileReads,
      allowSensitiveWrites: context.allowSensitiveFileWrites,
      checkUrl: (url) => urls.check(url, config.url_access, { signal }),
      allowCredentials: credentials,
    });
  },
});
