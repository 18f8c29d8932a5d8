import type { Taint } from "../../base/taint.ts";
import type { FileState } from "../files/file_state.ts";
import type { GitUse } from "./config_overrides.ts";
import type { FollowedBranch } from "./follow_branch.ts";

/** Real git on a repository of the workspace that cannot run a program of its own (docs/design/paths_and_commands.md "Git"). */
export interface Git {
  /**
   * Finds a repository and checks that neither its folders lead out of the workspace nor its configuration runs anything.
   * @throws {ToolError} `path_invalid`, `path_outside_root`, `not_a_repository`, `git_outside`, `git_too_large`,
   * `git_config_refused`, `git_too_old`, and those of `Processes.run`
   * @throws {CancelError} when the signal aborts
   */
  open(options: OpenOptions): Promise<Repository>;
}

/** Repository to open, and the rights of the call. */
export interface OpenOptions {
  /** Path of the repository, or of a folder in it, relative to the workspace. */
  readonly folder: string;
  /** True when `folder` may also name a file */
  readonly files: boolean;
  readonly scope: GitScope;
  readonly use: GitUse;
  /** True when the call only reads, whatever it opens the repository for: that of a linked working tree may then lie outside the workspace. Default false */
  readonly reads?: boolean;
  /** false: nothing in the workspace is changed */
  readonly writes: boolean;
  readonly signal: AbortSignal;
}

/** Files and remotes that a git call may reach. */
export interface GitScope {
  /** Absolute path of the folder the agent works in */
  readonly workspaceRoot: string;
  /** The user's forbidden paths beside the built-in ones */
  readonly forbiddenPaths: readonly string[];
  readonly sandbox: "auto" | "require" | "off";
  /** True when a remote may be given the user's stored credentials */
  readonly credentials: boolean;
  /** Outside content that the files which a call writes are made from. Default: none */
  readonly taint?: Taint | undefined;
}

/** A checked repository, for one call. */
export interface Repository {
  /** The folder the call named, relative to the top; empty for the top itself */
  readonly prefix: string;
  /** Name of the file in that folder that the call named. undefined when the call named a folder */
  readonly file: string | undefined;
  /** The top of the working tree, relative to the workspace; empty for the workspace itself */
  readonly folder: string;
  /** The configured remotes by name */
  readonly remotes: ReadonlyMap<string, RemoteUrls>;
  /** The upstream branch's name of a local branch, as it is configured */
  upstreamOf(branch: string): string | undefined;
  /** The forbidden path that a path relative to the top lies in; undefined: in none */
  forbiddenBy(path: string): string | undefined;
  /** Right to look for changes inside of submodules, which is there when all of them were checked */
  readonly submodules: SubmoduleLook;
  /** Names of the filters in the user's own configuration, such as `lfs`: they are not run. Where nothing is changed: none */
  readonly userFilters: ReadonlySet<string>;
  /** Tells whether a path, relative to the top, is a file of the working tree with several hard links: one may lie outside. */
  isLinked(path: string): Promise<boolean>;
  /** Looks at a path relative to the top, in the working tree, without following a link at its end. */
  stateOf(path: string): Promise<FileState>;
  /**
   * Runs one command at the top of the working tree; the caller has checked its arguments.
   * @throws {ToolError} `git_timeout`, and those of `Processes.run`
   * @throws {CancelError} when the signal aborts
   */
  run(args: readonly string[], options?: GitRunOptions): Promise<GitResult>;
  /**
   * Notes which branch of a remote a local branch follows, where none is noted yet. Commands find the configuration as it was checked, so that
   * none of them can.
   * @throws {ToolError} `git_failed` while somebody else changes the configuration, and where it cannot be written
   */
  follow(branch: string, upstream: FollowedBranch): Promise<void>;
}

/** Right of a command to start git in the submodules of a repository. */
export type SubmoduleLook =
  | { readonly isAllowed: true }
  /** `reason` is undefined where there is no submodule, or the use needs none */
  | { readonly isAllowed: false; readonly reason: string | undefined };

/** URLs of a remote as they are configured; `push` is `fetch` where nothing else is. */
export interface RemoteUrls {
  readonly fetch: readonly string[];
  readonly push: readonly string[];
}

/** Bounds of one git command. */
export interface GitRunOptions {
  /** Bytes that are kept of each stream. Default 65,536 */
  readonly maxOutputBytes?: number;
  /** The one remote it may reach, checked: nothing else is resolved or connected to. Default: none */
  readonly remote?: RemoteAddress;
  /** True when git writes the headers of each request and answer to stderr, without credentials. Default false */
  readonly headers?: boolean;
}

/** Where a remote is, as the URL policy has checked it. */
export interface RemoteAddress {
  readonly url: URL;
  readonly addresses: readonly string[];
}

/** How a command ended, with credentials of URLs masked. */
export interface GitResult {
  /** 128 and more where a signal ended it */
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly truncated: boolean;
}
