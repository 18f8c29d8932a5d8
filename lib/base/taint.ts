import { createHash } from "node:crypto";
import { lazily } from "./lazily.ts";
import { withoutEnd } from "./text.ts";

/**
 * Origins of outside content, the oldest first, such as `web_fetch example.com`: what a run has read of it, or what a record was made from.
 * Empty: none. Source: docs/design/policy.md "Content from outside"
 */
export type Taint = readonly string[];

/** The taint of what no outside content reached. */
export const UNTAINTED: Taint = [];

/** Origins that are named; with more of them the last one says so */
const MAX_ORIGINS = 16;
const MAX_ORIGIN_CHARACTERS = 120;
const MORE = "and others";

/** Returns the origins of several taints, each once. With more than 16 the last one is `and others`. */
export function joinTaints(...taints: readonly (Taint | undefined)[]): Taint {
  // Most work has read nothing from outside
  if (taints.every(isClean)) return UNTAINTED;
  const origins = new Set<string>();
  for (const taint of taints) for (const origin of taint ?? UNTAINTED) origins.add(shortened(origin));
  if (origins.size <= MAX_ORIGINS) return [...origins];
  origins.delete(MORE);
  return [...[...origins].slice(0, MAX_ORIGINS - 1), MORE];
}

function isClean(taint: Taint | undefined): boolean {
  return taint === undefined || taint.length === 0;
}

/** Returns the field `taint` of a record; nothing for a record that no outside content reached. */
export function taintField(taint: Taint): { readonly taint?: string[] } {
  return taint.length === 0 ? {} : { taint: [...taint] };
}

/** Taint of a run at work, and the addresses that it has read. Both only grow. */
export class RunTaint {
  #links: ReadLinks | undefined = undefined;
  #origins: Taint;

  /** @param origins what the run inherits: from its parent, its schedule or its conversation */
  constructor(origins: Taint = UNTAINTED) {
    this.#origins = isClean(origins) ? UNTAINTED : joinTaints(origins);
  }

  get origins(): Taint {
    return this.#origins;
  }

  /** Addresses in what the run has read, which `web_fetch` reaches without asking */
  get links(): ReadLinks {
    return (this.#links ??= new ReadLinks());
  }

  /** True when the run has read content from outside. */
  get isTainted(): boolean {
    return this.#origins.length > 0;
  }

  /** Returns the taint that the run has with more origins, for a decision before it reads them. The addresses are the run's. */
  with(origins: Taint): RunTaint {
    const more = new RunTaint(joinTaints(this.#origins, origins));
    more.#links = this.links;
    return more;
  }

  add(origins: Taint): void {
    if (origins.length > 0) this.#origins = joinTaints(this.#origins, origins);
  }
}

/** An origin as text on one line: a name that a page chose may hold anything. */
function shortened(origin: string): string {
  const line = origin.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ").trim();
  return line.length <= MAX_ORIGIN_CHARACTERS ? line : `${line.slice(0, MAX_ORIGIN_CHARACTERS).toWellFormed()}...`;
}

/** Addresses that are known; the oldest goes first */
const MAX_LINKS = 20_000;
/** Addresses of one text that another run may know */
const MAX_SHARED = 200;
/** A longer address is no link that a person or a page meant */
const MAX_CHARACTERS = 8192;
/** A longer one is kept as a digest */
const MAX_KEPT_CHARACTERS = 200;

/**
 * Addresses in the texts that a run has read. A text is looked through when the first question comes, so that a run without questions
 * pays nothing.
 */
export class ReadLinks {
  readonly #unread: { readonly text: string; readonly isPerson: boolean }[] = [];
  readonly #links = new Set<string>();

  add(text: string, { isPerson = false }: {
    /** True for the words of a person, who may write `example.com/page`. Default false */
    readonly isPerson?: boolean;
  } = {}): void {
    this.#unread.push({ text, isPerson });
  }

  /** Tells whether an address is in a text, letter by letter. Scheme and fragment do not count: neither tells the server anything. */
  has(url: string): boolean {
    this.#read();
    const key = keyOf(url);
    return key !== undefined && this.#links.has(key);
  }

  /**
   * Returns those addresses of a text that were read, for another run: the run that wrote the text may have made up the others.
   * @returns at most MAX_SHARED, in the form that `addShared` takes
   */
  sharedIn(text: string): string[] {
    this.#read();
    return [...new Set(keysIn(text, false))].filter((key) => this.#links.has(key)).slice(0, MAX_SHARED);
  }

  /** Adds what `sharedIn` of another run has returned. */
  addShared(shared: readonly string[]): void {
    for (const key of shared) this.#keep(key);
  }

  #read(): void {
    for (const { text, isPerson } of this.#unread.splice(0)) for (const key of keysIn(text, isPerson)) this.#keep(key);
  }

  #keep(key: string): void {
    this.#links.add(key);
    if (this.#links.size <= MAX_LINKS) return;
    // A set keeps its order
    for (const oldest of this.#links) return void this.#links.delete(oldest);
  }
}

const URLS = /https?:\\?\/\\?\/[^\s<>"`]+/gi;
/** Host names and what follows them, without a scheme. Made at its first use: V8 takes a millisecond to read the classes of Unicode */
const BARE = lazily(() =>
  /(?<![\p{L}\p{N}@/._-])(?:[\p{L}\p{N}](?:[\p{L}\p{N}-]{0,61}[\p{L}\p{N}])?\.){1,8}\p{L}{2,24}(?:[/?][^\s<>"`]*)?/gu
);
/** Characters that close a sentence or a bracket more often than an address */
const CLOSING = ".,;:!?'\")]}*_~|";

function* keysIn(text: string, isPerson: boolean): Iterable<string> {
  for (const [found] of text.matchAll(URLS)) {
    for (const piece of found.split(/(?=https?:\\?\/\\?\/)/i)) yield* keysOf(piece);
    // An address within an address, as an archive has it
    if (/.https?:\\?\/\\?\//i.test(found)) yield* keysOf(found);
  }
  if (isPerson) { for (const [found] of text.matchAll(BARE())) yield* keysOf(`https://${found}`); }
}

/** Returns the addresses that a piece of text may mean: Markdown, JSON and HTML escape some characters, and sentences end. */
function keysOf(piece: string): ReadonlySet<string> {
  const keys = new Set<string>();
  if (piece.length > MAX_CHARACTERS) return keys;
  const plain = piece.replace(/\\(.)/g, "$1").replaceAll("&amp;", "&");
  for (const form of new Set([piece, plain])) {
    const bracket = /[)\]]/.exec(form)?.index;
    const before = bracket === undefined ? form : form.slice(0, bracket);
    for (const one of [form, withoutEnd(form, CLOSING), withoutEnd(form, ".,;:!?'\""), before]) {
      const key = keyOf(one);
      if (key !== undefined) keys.add(key);
    }
  }
  return keys;
}

/** Returns what the server of an address is told. undefined for a text that is none. */
function keyOf(text: string): string | undefined {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) return undefined;
  url.hash = "";
  const key = url.href.slice(url.protocol.length);
  return key.length <= MAX_KEPT_CHARACTERS ? key : createHash("sha256").update(key).digest("base64");
}
