import { mkdtemp, open, readdir, realpath, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { Poller } from "../../base/poller.ts";
import type { Processes } from "../process/processes.ts";
import type { Git, GitScope, RemoteAddress, Repository } from "./git.ts";
import { gitEnvironment, runGit } from "./git_process.ts";

/** Files of one commit, as a repository elsewhere has them. */
export interface FetchedFiles {
  /** Hash of the commit */
  readonly commit: string;
  /** Tar of the chosen folder. Paths begin in that folder */
  readonly tar: Uint8Array;
}

/** Repository to fetch from, and the folder of it that is wanted. */
export interface FetchFilesOptions {
  /** URL and addresses, as the URL policy has checked them */
  readonly remote: RemoteAddress;
  /** Branch, tag or commit. Default: the default branch */
  readonly ref?: string | undefined;
  /** Chooses the folder among the paths of all files; empty for the top, otherwise with `/` at the end */
  readonly choose: (paths: readonly string[]) => string;
  /** Bytes that the chosen files may have together */
  readonly maxBytes: number;
  /** Files that may be chosen */
  readonly maxFiles: number;
  readonly signal: AbortSignal;
}

/** Services that fetching works with. */
export interface FetchFilesServices {
  readonly git: Git;
  readonly processes: Pick<Processes, "run">;
  readonly clock: Clock;
}

/** Bytes on the disk that a fetch may take */
const MAX_FETCHED_BYTES = 268_435_456;
/** Bytes of the list of a commit's files */
const MAX_LIST_BYTES = 8_388_608;
const TIMEOUT_MS = 20_000;
const LOOK_MS = 500;
/** Names of branches, tags and commits that cannot be read as anything else. Source: git-check-ref-format(1) */
const REF = /^(?!.*(?:\.\.|@\{|\/\/|\.lock(?:\/|$)))[A-Za-z0-9][A-Za-z0-9._/@+-]{0,199}$/;
const FETCHED = "refs/heads/fetched";

/**
 * Fetches one commit into a folder of its own, which is removed afterwards, and packs a folder of it. Nothing is checked out: no hook, filter or
 * configuration of the repository is run, submodules are left alone, and redirects are not followed.
 * @throws {ToolError} `git_failed`, `git_too_large`, `git_ref`, and those of `Git.open` and `Processes.run`
 * @throws {CancelError} when the signal aborts
 */
export async function fetchFiles(options: FetchFilesOptions, services: FetchFilesServices): Promise<FetchedFiles> {
  const { ref = "HEAD" } = options;
  if (!REF.test(ref)) {
    throw new ToolError(
      "git_ref",
      `Cannot fetch ${JSON.stringify(ref.slice(0, 100))}: it is no name of a branch or tag`,
    );
  }
  const folder = await realpath(await mkdtemp(join(tmpdir(), "postern-fetch-")));
  try {
    const scope = { workspaceRoot: folder, forbiddenPaths: [], sandbox: "auto", credentials: false } as const;
    const size = new AbortController();
    await initialize(scope, options, services);
    const repository = await services.git.open({
      folder: ".",
      files: false,
      scope,
      use: { content: false, merges: false, network: true },
      writes: true,
      signal: AbortSignal.any([options.signal, size.signal]),
    });
    await fetchCommit(repository, { folder, ref, remote: options.remote, size, clock: services.clock });
    const commit = (await succeed(repository, ["rev-parse", "--verify", `${FETCHED}^{commit}`])).trim();
    const chosen = await chooseFiles(repository, options);
    return { commit, tar: await pack(repository, { folder, chosen, maxBytes: options.maxBytes }) };
  } finally {
    await rm(folder, { recursive: true, force: true }).catch(() => {});
  }
}

async function initialize(
  scope: GitScope,
  { signal }: FetchFilesOptions,
  { processes }: FetchFilesServices,
): Promise<void> {
  const top = scope.workspaceRoot;
  const env = gitEnvironment({ gitDir: join(top, ".git"), top, overrides: [], writes: true });
  const { code, stderr } = await runGit(processes, {
    args: ["-C", top, "init", "--quiet", "--template=", "--initial-branch=main"],
    ...{ env, scope, signal, timeoutMs: TIMEOUT_MS, maxOutputBytes: 65_536, writes: true },
  });
  if (code !== 0) throw failed(stderr);
}

/** Fetches one commit, and ends the fetch where it becomes too large. */
async function fetchCommit(
  repository: Repository,
  { folder, ref, remote, size, clock }: Pick<FetchFilesOptions, "remote"> & {
    readonly folder: string;
    readonly ref: string;
    readonly size: AbortController;
    readonly clock: Clock;
  },
): Promise<void> {
  const args = ["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-auto-maintenance"];
  const poller = new Poller(async () => {
    if (await sizeOf(join(folder, ".git")) > MAX_FETCHED_BYTES) size.abort(new CancelError("cancelled"));
  });
  poller.start(clock, LOOK_MS);
  try {
    const { code, stderr } = await repository.run([...args, "--", remote.url.href, `+${ref}:${FETCHED}`], { remote });
    await poller.look();
    if (code !== 0) throw failed(stderr);
  } catch (error) {
    if (!size.signal.aborted) throw error;
  } finally {
    await poller.stop();
  }
  if (size.signal.aborted) throw tooLarge(`the repository has over ${MAX_FETCHED_BYTES} bytes`);
}

/** Adds up the files below a folder. */
async function sizeOf(folder: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true }).catch(() => [])) {
    if (!entry.isFile()) continue;
    bytes += await stat(join(entry.parentPath, entry.name)).then(({ size }) => size, () => 0);
  }
  return bytes;
}

/** Returns the folder that is wanted, once its files are known to be few and small. */
async function chooseFiles(
  repository: Repository,
  { choose, maxBytes, maxFiles }: FetchFilesOptions,
): Promise<string> {
  const listed = await repository.run(["ls-tree", "-r", "-z", "--long", FETCHED], { maxOutputBytes: MAX_LIST_BYTES });
  if (listed.code !== 0) throw failed(listed.stderr);
  if (listed.truncated) throw tooLarge("the repository has too many files");
  const entries = listed.stdout.split("\0").filter((line) => line !== "").map((line) => {
    const tab = line.indexOf("\t");
    const [mode = "", , , size = ""] = line.slice(0, tab).split(/ +/);
    return { path: line.slice(tab + 1), mode, size: Number(size) || 0 };
  });
  const folder = choose(entries.map(({ path }) => path));
  const chosen = entries.filter(({ path }) => path.startsWith(folder));
  const odd = chosen.find(({ mode }) => !mode.startsWith("100"));
  if (odd !== undefined) {
    const what = odd.mode === "120000" ? "a link" : "no plain file";
    throw new ToolError("git_failed", `Cannot fetch: ${JSON.stringify(odd.path.slice(0, 200))} is ${what}`);
  }
  if (chosen.length > maxFiles) throw tooLarge(`it has over ${maxFiles} files`);
  if (chosen.reduce((sum, { size }) => sum + size, 0) > maxBytes) throw tooLarge(`it has over ${maxBytes} bytes`);
  return folder;
}

/** Packs a folder of the fetched commit. A tree has no commit to write into the tar. */
async function pack(
  repository: Repository,
  { folder, chosen, maxBytes }: { readonly folder: string; readonly chosen: string; readonly maxBytes: number },
): Promise<Uint8Array> {
  const name = "files.tar";
  const tree = `${FETCHED}:${chosen.replace(/\/$/, "")}`;
  await succeed(repository, ["archive", "--format=tar", `--output=${name}`, tree]);
  const file = await open(join(folder, name));
  try {
    // Each file has a header, and is filled up to a block
    const { size } = await file.stat();
    if (size > 2 * maxBytes) throw tooLarge(`it has over ${maxBytes} bytes`);
    return await file.readFile();
  } finally {
    await file.close();
  }
}

async function succeed(repository: Repository, args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await repository.run(args);
  if (code !== 0) throw failed(stderr);
  return stdout;
}

function failed(stderr: string): ToolError {
  const [line = ""] = stderr.trim().split("\n").slice(-1);
  return new ToolError("git_failed", `Cannot fetch: ${line.slice(0, 500) || "git failed without a message"}`);
}

function tooLarge(reason: string): ToolError {
  return new ToolError("git_too_large", `Cannot fetch: ${reason}`);
}
