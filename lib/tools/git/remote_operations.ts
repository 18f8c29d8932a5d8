import { ToolError } from "../../base/errors.ts";
import type { GitResult, RemoteAddress } from "../../system/git/git.ts";
import { maskUserinfo } from "../../system/git/git_process.ts";
import type { ToolResult } from "../runtime/tool_call.ts";
import { requireOverwritable } from "./checked_names.ts";
import { failed, type GitCall, toResult } from "./git_call.ts";
import { isBranchName, resolveCommit } from "./git_input.ts";
import { status } from "./read_operations.ts";
import { changedUpTo } from "./write_operations.ts";

/** URLs that git and the URL policy read alike: without backslash, blank, second `@` and a dot at the end of the host */
const PLAIN_URL =
  /^https?:\/\/(?:([^\s\\/@?#]+)@)?(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::\d{1,5})?(?:\/[!-~]*)?$/i;

/** Characters of an address that a message shows */
const MAX_URL_SHOWN = 200;

/** Pushes one branch to the branch of the same name at the remote. */
export async function push(call: GitCall): Promise<ToolResult> {
  const remote = call.input.remote ?? "origin";
  const address = await addressOf(call, remote, "push");
  const branch = call.input.branch ?? await currentBranch(call);
  await resolveCommit(call.repository, `refs/heads/${branch}`);
  const args = ["push", "--porcelain", "--no-verify", "--no-signed", "--no-recurse-submodules", "--no-follow-tags"];
  const ref = `refs/heads/${branch}`;
  const { stdout } = await reach(call, [...args, "--", remote, `${ref}:${ref}`], { remote, address });
  return toResult(maskUserinfo(stdout), { empty: "pushed" });
}

/** Fetches one branch and merges it into the current one, without rebasing. */
export async function pull(call: GitCall): Promise<ToolResult> {
  const remote = call.input.remote ?? "origin";
  const address = await addressOf(call, remote, "fetch");
  const current = await currentBranch(call);
  const branch = call.input.branch ?? upstreamOf(call, current) ?? current;
  const tracking = `refs/remotes/${remote}/${branch}`;
  const args = ["fetch", "--no-progress", "--no-recurse-submodules", "--no-auto-maintenance", "--no-tags", "--refmap="];
  await reach(call, [...args, "--", remote, `+refs/heads/${branch}:${tracking}`], { remote, address });
  const target = await resolveCommit(call.repository, tracking);
  await requireOverwritable(call, await changedUpTo(call, target, "..."));
  const merge = ["merge", "--no-edit", "--no-verify", "--no-gpg-sign", "--no-verify-signatures", "--no-progress"];
  const merged = await call.repository.run([...merge, "--no-autostash", "--strategy=ort", "--ff", tracking]);
  if (merged.code !== 0) throw failed("pull", merged);
  const { output } = await status(call);
  return toResult(`${merged.stdout}${output}`, { empty: "up to date" });
}

interface Reached {
  readonly remote: string;
  readonly address: RemoteAddress;
}

/**
 * Runs a command that talks to a remote. Redirects are not followed: an approval counts for the address that a person saw.
 * @throws {ToolError} `git_remote_refused` with the address that a redirect leads to, and those of `succeed`
 */
async function reach(call: GitCall, args: readonly string[], reached: Reached): Promise<GitResult> {
  const result = await call.repository.run(args, { remote: reached.address });
  if (result.code === 0) return result;
  if (!REDIRECT.test(result.stderr)) throw failed(call.input.op, result);
  throw new ToolError(
    "git_remote_refused",
    `Cannot reach the remote "${reached.remote}" at ${shownUrl(reached.address.url)}: it redirects to ${await targetOf(
      call,
      reached,
    )}; when you trust the other address, set it with "git remote set-url"`,
  );
}

/** Message of git about an answer that leads elsewhere */
const REDIRECT = /returned error: 30[12378]\b/;
/** Request of git for the branches of a remote */
const INFO = /\/info\/refs$/;

/** Asks a remote once more, for its branches, and returns where its answer leads, for a message. */
async function targetOf(call: GitCall, { remote, address }: Reached): Promise<string> {
  const { stderr } = await call.repository.run(["ls-remote", "--quiet", "--", remote], {
    remote: address,
    headers: true,
  });
  const location = /<= Recv header:? location: *(\S+)/i.exec(stderr)?.[1];
  if (location === undefined) return "an address that it no longer names";
  const target = URL.canParse(location, address.url.href) ? new URL(location, address.url) : undefined;
  if (target === undefined || !/^https?:$/.test(target.protocol)) return "an address that is no http or https URL";
  return shownUrl(target);
}

/** Returns the address of a repository in quotes, without user information, query and what git appends. */
function shownUrl({ origin, pathname }: URL): string {
  return JSON.stringify(`${origin}${pathname.replace(INFO, "")}`.slice(0, MAX_URL_SHOWN));
}

/** Returns the upstream branch that is configured. undefined for none, and for a name that no branch can have. */
function upstreamOf({ repository }: GitCall, branch: string): string | undefined {
  const upstream = repository.upstreamOf(branch);
  return upstream !== undefined && isBranchName(upstream) ? upstream : undefined;
}

async function currentBranch(call: GitCall): Promise<string> {
  const { code, stdout } = await call.repository.run(["symbolic-ref", "--quiet", "--short", "HEAD"]);
  if (code === 0) return stdout.trim();
  throw new ToolError(
    "git_no_branch",
    `Cannot run git ${call.input.op}: no branch is checked out; check one out first`,
  );
}

/**
 * Returns the checked address of a remote, by its configured name.
 * @throws {ToolError} `git_unknown_remote`, `git_remote_refused`, `git_credentials`, and those of the URL policy
 */
async function addressOf(call: GitCall, remote: string, direction: "fetch" | "push"): Promise<RemoteAddress> {
  const { remotes } = call.repository;
  const urls = remotes.get(remote)?.[direction] ?? [];
  const [url] = urls;
  if (url === undefined) {
    const known = [...remotes.keys()].map((name) => JSON.stringify(name)).join(", ") || "none";
    throw new ToolError("git_unknown_remote", `Cannot reach the remote "${remote}": the remotes are ${known}`);
  }
  const where = `Cannot reach the remote "${remote}" at ${JSON.stringify(maskUserinfo(url).slice(0, MAX_URL_SHOWN))}`;
  if (urls.length > 1) throw new ToolError("git_remote_refused", `${where}: it has ${urls.length} URLs; leave one`);
  const plain = PLAIN_URL.exec(url);
  if (plain === null) {
    throw new ToolError(
      "git_remote_refused",
      `${where}: only plain http and https URLs are reached; set one such as https://example.com/repository.git`,
    );
  }
  if (plain[1] !== undefined && !call.allowCredentials) {
    throw new ToolError(
      "git_credentials",
      `${where}: the URL has a user or password in it; take it out, or set [security.git] credentials = true`,
    );
  }
  return await call.checkUrl(url);
}
