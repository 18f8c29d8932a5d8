import { type ParseRecord, reasonOf } from "./read_records.ts";
import type { UnreadableRecord } from "./store.ts";

/** Parsers of everything that a database holds. */
export interface StoredParsers {
  /** By collection. A record of another collection need only be JSON */
  readonly collections: Readonly<Record<string, ParseRecord<unknown>>>;
  /** By the part of a stream's name before the slash */
  readonly streams: Readonly<Record<string, ParseRecord<unknown>>>;
}

/** Records that were found unreadable, and whether all records were looked at. */
export interface UnreadableFound {
  readonly unreadable: readonly UnreadableRecord[];
  readonly looked: number;
  readonly finished: boolean;
}

/** Record or entry of a stream, with its body as it is stored. */
export interface StoredText {
  readonly kind: "collections" | "streams";
  /** Collection or stream */
  readonly name: string;
  readonly key: string;
  /** Undefined: the bytes are no text */
  readonly body: string | undefined;
}

/** Damaged records that are named at once. */
const MAX_FOUND = 1_000;

/** Search through all records of a database for those that cannot be parsed. */
export class UnreadableSearch {
  readonly #parsers: StoredParsers;
  readonly #isOver: () => boolean;
  readonly #unreadable: UnreadableRecord[] = [];
  #looked = 0;

  /** @param isOver asked before each record: true ends the search early. Default: all are looked at */
  constructor(parsers: StoredParsers, isOver: () => boolean = () => false) {
    this.#parsers = parsers;
    this.#isOver = isOver;
  }

  /** Looks at some records. @returns false: the search is over, and did not look at all of them */
  look(rows: Iterable<StoredText>): boolean {
    for (const row of rows) {
      if (this.#isOver() || this.#unreadable.length >= MAX_FOUND) return false;
      this.#looked++;
      const reason = whyUnreadable(row.body, this.#parserOf(row));
      if (reason !== undefined) this.#unreadable.push({ collection: row.name, key: row.key, reason });
    }
    return true;
  }

  /** Returns what was found. @param finished true: every record was looked at */
  found(finished: boolean): UnreadableFound {
    return { unreadable: this.#unreadable, looked: this.#looked, finished };
  }

  #parserOf({ kind, name }: StoredText): ParseRecord<unknown> | undefined {
    return kind === "collections"
      ? ownOf(this.#parsers.collections, name)
      : ownOf(this.#parsers.streams, name.split("/", 1)[0] ?? "");
  }
}

/** Returns the parser of this name, and none that every object has, such as "constructor". */
function ownOf(parsers: Readonly<Record<string, ParseRecord<unknown>>>, name: string) {
  return Object.hasOwn(parsers, name) ? parsers[name] : undefined;
}

function whyUnreadable(json: string | undefined, parse: ParseRecord<unknown> | undefined): string | undefined {
  if (json === undefined) return "its text is damaged";
  let body: unknown;
  try {
    body = JSON.parse(json);
    parse?.(body);
    return undefined;
  } catch (error) {
    return reasonOf(body, error);
  }
}
