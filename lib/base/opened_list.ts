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

/** Part of a gateway that starts once the parts are there that it needs. */
export interface Wing<Name extends string, Needs, Made> {
  /** Name by which the wings after it need what it makes. */
  readonly name: Name;
  /** Makes the services of the wing. @param opened takes whatever it opens, so that a start that fails half-way closes it too */
  readonly start: (needs: Needs, opened: OpenedList) => Made | Promise<Made>;
}

type AnyWing = Wing<string, never, unknown>;

type MadeBy<W extends AnyWing> = { readonly [Name in W["name"]]: Awaited<ReturnType<W["start"]>> };

/** The same wings, each with what stands before it as its needs: a wing that needs anything else is not one of them. */
type InOrder<Wings, Found> = Wings extends readonly [infer First extends AnyWing, ...infer Rest]
  ? readonly [Wing<First["name"], Found, unknown>, ...InOrder<Rest, Found & MadeBy<First>>]
  : readonly [];

/** Parts that were there before the wings, and those that each of them made, by its name. */
type MadeByAll<Wings, Found> = Wings extends readonly [infer First extends AnyWing, ...infer Rest]
  ? MadeByAll<Rest, Found & MadeBy<First>>
  : Found;

/** Declares a wing. It needs the type of the first parameter of `start`, of which each field is the name of a wing before it. */
export function defineWing<const Name extends string, Needs, Made>(
  wing: Wing<Name, Needs, Made>,
): Wing<Name, Needs, Made> {
  return wing;
}

/**
 * Starts wings one after the other. The list does not compile where a wing needs what no wing before it makes.
 * @param found parts that are there before the first wing
 */
export async function startInOrder<
  Found extends Readonly<Record<string, unknown>>,
  const Wings extends readonly AnyWing[],
>(
  found: Found,
  opened: OpenedList,
  wings: Wings & InOrder<Wings, Found>,
): Promise<MadeByAll<Wings, Found>> {
  const made: Record<string, unknown> = { ...found };
  for (const { name, start } of wings) {
    // InOrder has compared the needs of each wing with what is made before it
    made[name] = await start(made as never, opened);
  }
  // Each wing has put what it makes under its name
  return made as MadeByAll<Wings, Found>;
}
