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
