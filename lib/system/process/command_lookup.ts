/** Where a command would be found; nothing is run. */
export interface CommandLookup {
  /**
   * @param command a bare name, without a path separator
   * @returns absolute path of the executable file, undefined when no folder of the search path has one
   */
  find(command: string): Promise<string | undefined>;
  /**
   * What tells the executable that `find` gives from any other that takes its place, or from itself once it was changed.
   * @returns undefined where `find` does
   */
  identify(command: string): Promise<string | undefined>;
}
