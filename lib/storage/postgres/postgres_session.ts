import type { Client, QueryResult } from "pg";
import type { Clock } from "../../base/clock.ts";
import { DatabaseAwayError, onlyReads, statementError } from "./database_errors.ts";
import { type PostgresValue, withValues } from "./statement_text.ts";

/** Row of a result, by the names of its columns. `int8` is a number, `bytea` a Uint8Array. */
export type PostgresRow = Readonly<Record<string, unknown>>;

/** Something that runs statements. */
export interface PostgresSession {
  /**
   * Runs one statement, or several with `;` between them as one transaction, in one round trip. `$1` stands for the first value.
   * @returns the rows of the last statement
   * @throws {DatabaseAwayError} the connection failed; the server's own error with its `code` (SQLSTATE, see `sqlStateOf`) otherwise
   */
  query(text: string, values?: readonly PostgresValue[]): Promise<readonly PostgresRow[]>;
}

/** Milliseconds that a reply may take on its way beyond the statement's own time, before the connection counts as lost. */
export const REPLY_GRACE_MS = 5_000;

/**
 * Asks the server whether it writes. A standby that is not promoted yet answers with what it has replayed so far, so a token may still count
 * there that was revoked: nothing is read from a server that only reads.
 */
export const DOES_IT_WRITE = "SHOW transaction_read_only";

/** Returns the settings of one transaction. A lock that was waited for is of use only when the next statement sees what its holder wrote. */
export function settings(timeoutMs: number): string {
  return `SET LOCAL statement_timeout = ${timeoutMs}; SET LOCAL transaction_isolation = 'read committed'; ${DOES_IT_WRITE}`;
}

/**
 * Runs a text on a connection. A reply that does not come in time ends the connection.
 * @throws {DatabaseAwayError} also when the text asks whether the server writes, and it does not
 */
export async function runStatements(
  client: Pick<Client, "query" | "end">,
  statement: string,
  { name, ms, clock }: { readonly name: string; readonly ms: number; readonly clock: Clock },
): Promise<QueryResult> {
  const timer = clock.after(ms, () => void client.end().catch(() => {}));
  try {
    // A text of several statements gives a list of results, which the types of pg leave out
    const results = await client.query(statement) as QueryResult | [...QueryResult[], QueryResult];
    if (!Array.isArray(results)) return results;
    if (results.some(({ command, rows }) => command === "SHOW" && rows[0]?.transaction_read_only === "on")) {
      throw onlyReads(name);
    }
    return results[results.length - 1] as QueryResult; // the list is not empty
  } catch (error) {
    throw statementError(name, error);
  } finally {
    timer.clear();
  }
}

/** Returns the rows of a result, as the types of `clientConfig` make them. */
export function rowsOf(result: QueryResult): readonly PostgresRow[] {
  return result.rows;
}

/** Creates the order of the statements of a connection: one is sent after the answer to the one before. */
export function createOrder() {
  let last: Promise<unknown> = Promise.resolve();
  return <T>(send: () => Promise<T>): Promise<T> => {
    const answer = last.then(send);
    last = answer.catch(() => {});
    return answer;
  };
}

/**
 * Runs `work` between BEGIN and COMMIT on one connection, and rolls back when it throws.
 * @param runText sends a text on the connection
 * @param options.timeoutMs milliseconds after which the server gives a statement up
 */
export async function inTransaction<T>(
  runText: (text: string) => Promise<QueryResult>,
  { work, timeoutMs }: {
    readonly work: (session: PostgresSession) => Promise<T>;
    readonly timeoutMs: number;
  },
): Promise<T> {
  await runText(`BEGIN; ${settings(timeoutMs)}`);
  let result: T;
  const inOrder = createOrder();
  try {
    result = await work({
      query: async (text, values = []) => rowsOf(await inOrder(() => runText(withValues(text, values)))),
    });
  } catch (error) {
    if (!(error instanceof DatabaseAwayError)) await inOrder(() => runText("ROLLBACK"));
    throw error;
  }
  const { command } = await runText("COMMIT");
  if (command !== "COMMIT") throw new Error("Cannot commit a transaction: one of its statements failed before");
  return result;
}
