/**
 * Files for tools: the one `safe_path` (docs/design/paths_and_commands.md "The promise of files").
 *
 * Promise on every platform: no byte of a file outside the root is read and none written outside, at any moment. Paths are
 * relative to the root, without `..` and NUL; only regular files with one hard link are opened; sensitive names and forbidden
 * paths are refused.
 */
export interface Files {
  /** How the promise is kept: by a walk over directory handles (Linux), or by checking each opened file before its first byte */
  readonly variant: FilesVariant;
  /** With it and a clock of its own a thread makes the same door */
  readonly setup: FilesSetup;
  /**
   * Opens a file for reading; close it.
   * @throws {ToolError} `path_invalid`, `path_outside_root`, `path_forbidden`, `path_sensitive`, `not_found`, `not_a_file`,
   * `hard_link`, `access_denied`
   */
  open(path: string, scope: FileScope): Promise<OpenFile>;
  /**
   * Returns the names of a folder's entries, links and special files included, in no order.
   * @param folder relative to the root; `.` for the root itself
   * @returns undefined for more than `limit` entries
   * @throws {ToolError} as `open`, and `not_a_folder`
   */
  names(folder: string, scope: FileScope, limit: number): Promise<readonly string[] | undefined>;
  /**
   * Walks the files below a folder, one array per folder, sorted by name, without following symbolic links. What the rules
   * refuse is left out silently.
   * @param folder relative to the root; `.` for the root itself
   * @throws {ToolError} as `open`, and `not_a_folder`, for the folder the walk starts at
   * @throws {CancelError} when the signal aborts
   */
  walk(folder: string, scope: FileScope, options: WalkOptions): AsyncGenerator<readonly WalkedFile[], WalkEnd>;
  /**
   * Looks at a file that is about to be changed, with every check of a change.
   * @param options.maxBytes reads the content too, up to so many bytes; undefined: not at all
   * @throws {ToolError} as `open`, and `path_protected`, `symbolic_link`, `not_a_folder`, `file_too_large`
   */
  inspect(path: string, scope: FileScope, options: { readonly maxBytes: number | undefined }): Promise<Inspected>;
  /**
   * Makes all changes or none: each file is written beside its place and put there in one step, on stable storage when this
   * resolves. Missing folders are made. A failure in the middle takes back what was done; a crash leaves each file either old or
   * new, and perhaps a temporary one, which the next change in that folder removes.
   * @throws {ToolError} as `inspect`, and `path_changed` when a file is not what `inspect` saw, `partly_written` when the
   * taking back failed too
   * @throws {CancelError} when the signal aborts before the first change
   */
  change(changes: readonly FileChange[], scope: FileScope, options: { readonly signal: AbortSignal }): Promise<void>;
}

/** Path that may be changed, with the file that lies there. */
export interface Inspected {
  /** Real path relative to the root: two names of one place have the same */
  readonly path: string;
  /** undefined: there is nothing, and a file may be made */
  readonly file: InspectedFile | undefined;
  /** Name in the folder that looks like that of a file which is not there, as with U+202F for a blank; undefined: there is not one alone */
  readonly like?: string | undefined;
}

/** State of a file that is about to be changed. `size` is in bytes. */
export interface InspectedFile {
  readonly size: number;
  /** Permission bits */
  readonly mode: number;
  /** Another one when the file was changed or replaced since */
  readonly version: string;
  /** undefined when it was not asked for */
  readonly content: Uint8Array | undefined;
}

/**
 * Source of a content that comes piece by piece, such as a download. It resolves when the content is whole; when it throws, no file is made.
 * @param write takes the next bytes, which are on their way to the disk when it resolves
 */
export type ContentSource = (write: (bytes: Uint8Array) => Promise<void>) => Promise<void>;

/** Change of one file: new content for it, or its removal. `path` is relative to the root. */
export type FileChange =
  | {
    readonly kind: "write";
    readonly path: string;
    /** The bytes, or their source. Other changes go on while a source is at work */
    readonly content: Uint8Array | ContentSource;
    /** `version` of the file that is replaced; undefined: there must be none */
    readonly expected: string | undefined;
    /** Permission bits of a new file. Default: as the process makes files */
    readonly mode?: number;
  }
  | { readonly kind: "remove"; readonly path: string; readonly expected: string };

/** Ways to keep a path inside the root: `handles` by open folders (Linux), `checked` by looks before and after (every other platform). */
export type FilesVariant = "handles" | "checked";

/** Settings of a door to files. Plain data, so that a thread can get them. */
export interface FilesSetup {
  /** The user's home folder, for `~/` in forbidden paths */
  readonly home: string;
  /** Postern's own data directory and configuration files: forbidden paths too. Absolute */
  readonly ownPaths: readonly string[];
  readonly variant: FilesVariant;
}

/** Files that one call may reach. */
export interface FileScope {
  /** Absolute path of the folder the agent works in */
  readonly workspaceRoot: string;
  /** `allowed_root`: absolute, or relative to the workspace; tool paths are relative to it */
  readonly allowedRoot: string;
  /** The user's forbidden paths beside the built-in ones: absolute, or starting with `~/` */
  readonly forbiddenPaths: readonly string[];
  /** Opens `.env`, keys and their like */
  readonly allowSensitive: boolean;
}

/** A checked, open, regular file. */
export interface OpenFile {
  /** Bytes at the time of opening */
  readonly size: number;
  /** Tells whether a `version` is one of the opened file, whatever has its name by now. */
  isVersion(version: string): boolean;
  /** Reads into the whole of `buffer` from `position`. @returns bytes read, 0 at the end */
  read(buffer: Uint8Array, position: number): Promise<number>;
  close(): Promise<void>;
}

/** Bounds of a walk. */
export interface WalkOptions {
  /** Leaves out what `.gitignore` files name, and `.git` itself */
  readonly respectGitignore: boolean;
  /** Folders and files looked at before the walk stops */
  readonly maxEntries: number;
  readonly signal: AbortSignal;
}

/** A file met by a walk: `open` works until the next array is asked for. */
export interface WalkedFile {
  /** Relative to the root, with `/` */
  readonly path: string;
  /** Relative to the folder the walk started at; the file's name when it started at a file */
  readonly below: string;
  /** @throws {ToolError} as Files.open */
  open(): Promise<OpenFile>;
}

/** End of a walk. `truncated`: it stopped at `maxEntries`. */
export interface WalkEnd {
  readonly truncated: boolean;
}

/** Guard of changes that are made while their locks are held. */
export interface FileGuard {
  /** True: other machines change the same files, so what this one remembers of them may be old. */
  readonly isShared: boolean;
  /** Resolves when the next file may be changed. @throws {CancelError} when this gateway may not act any more */
  mayChange(): Promise<void>;
}

/** Locks of files that gateways of one workspace change. A gateway alone has none: its changes are made one after the other anyway. */
export interface FileLocks {
  /** Tells whether other gateways have the same workspace. */
  isShared(): boolean;
  /**
   * Does work while no other gateway changes these files.
   * @param paths absolute
   * @throws {ToolError} `file_locked` after 30 seconds; {CancelError} when the signal aborts first
   */
  hold<T>(
    paths: readonly string[],
    options: { readonly workspaceRoot: string; readonly signal: AbortSignal },
    work: (guard: FileGuard) => Promise<T>,
  ): Promise<T>;
}
