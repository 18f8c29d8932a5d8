/** List of opened things that are closed together, in the reverse order of their opening. */
export interface OpenedList {
  /** Adds a thing with the way to close it, and returns the thing. */
  own<T>(thing: T, close: (thing: T) => Promise<void> | void): T;
  /**
   * Closes everything, one thing after the other. A thing that fails to close keeps no other thing open. Repeating it does nothing.
   * @throws the error of the thing that failed to close; {AggregateError} when several failed
   */
  close(): Promise<void>;
}

/** Creates an empty list. */
export function createOpenedList(): OpenedList {
  const closing: (() => Promise<void> | void)[] = [];
  return {
    own(thing, close) {
      closing.push(() => close(thing));
      return thing;
    },
    async close() {
      const errors: unknown[] = [];
      for (const end of closing.splice(0).reverse()) {
        try {
          await end();
        } catch (error) {
          errors.push(error);
        }
      }
      if (errors.length > 1) {
        throw new AggregateError(errors, "Cannot close everything: several things failed to close");
      }
      if (errors.length === 1) throw errors[0];
    },
  };
}

/**
 * Opens things step by step. When a step fails, closes what the steps before it opened, and throws the error of the step.
 *
 * An error of that closing is dropped: the error of the step says what to mend.
 * @param open adds to the list each thing that it opens; the caller gets the list's `close` through the value
 */
export async function openInSteps<T>(open: (opened: OpenedList) => Promise<T>): Promise<T> {
  const opened = createOpenedList();
  try {
    return await open(opened);
  } catch (error) {
    await opened.close().catch(() => {});
    throw error;
  }
}
