import type { ElementHandle, Locator, Page } from "playwright-core";
import { ToolError } from "../../base/errors.ts";
import { createRedactor, findsInAnyCase } from "../../base/redact.ts";
import type { GuardedTargets, PausedRequest } from "./guarded_targets.ts";

/** Secret that is to be put into a password field. */
export interface SecretFill {
  /** Name of the secret, for errors */
  readonly name: string;
  /** Returns the value for the page that the field is on. @throws {ToolError} when the secret is not for that page */
  readonly valueFor: (url: URL) => Promise<string>;
  /** Tells whether the value may go to an address. */
  readonly goesTo: (url: URL) => boolean;
}

/** Ways to keep requests of a browser from going out. */
export interface SecretGuards extends Pick<GuardedTargets, "guard"> {
  /** Ends every connection, and lets new ones reach only what a function allows. */
  readonly narrow: (mayReach: (url: URL) => boolean) => void;
}

/** A value that a page has got. */
interface FilledValue extends Pick<SecretFill, "goesTo"> {
  readonly value: string;
  readonly isIn: (text: string) => boolean;
  /** As `isIn`, for names that are compared without case */
  readonly isInName: (name: string) => boolean;
}

/** The element itself, where it is a password field. Selectors run in a world of the page's document that its scripts do not reach. */
const PASSWORD = 'xpath=self::input[translate(@type, "PASWORD", "pasword") = "password"]';
/** Fields that may show a value: scripts can copy one, and turn a password field into a text field at any moment. */
const FIELDS = "input, textarea, select, option";
/** Requests whose hosts are remembered, for redirects */
const MAX_REQUESTS = 1_000;
const MAX_PICTURED_LENGTH = 1_000;

/**
 * Secrets that pages of one run have got. The page of a secret's own host knows the value from then on; nobody else is to learn it: requests
 * with the value go to hosts of the secret alone and across no redirect to another host, and pictures hide what may show it.
 */
export class FilledSecrets {
  readonly #guards: SecretGuards;
  readonly #note: (sentence: string) => void;
  readonly #values: FilledValue[] = [];
  #isGuarded = false;
  /** Hosts of requests by their ids */
  readonly #hosts = new Map<string, string>();
  /** Origins of requests that may go out: their connections are let through */
  readonly #origins = new Set<string>();

  constructor(guards: SecretGuards, note: (sentence: string) => void) {
    this.#guards = guards;
    this.#note = note;
  }

  /**
   * Puts a secret into a password field. The field and its page are those that were checked: an element of another document is gone.
   * @throws {ToolError} `secret_refused` for a field that is none for passwords, or stays none; what `valueFor` throws
   */
  async fill(field: Locator, secret: SecretFill, timeoutMs: number): Promise<void> {
    const limits = { timeout: timeoutMs };
    const element = await field.elementHandle(limits);
    const frame = await element?.ownerFrame() ?? null;
    if (element === null || frame === null) throw notPassword(secret.name);
    await requirePassword(element, secret.name);
    const value = await secret.valueFor(URL.parse(frame.url()) ?? new URL("about:blank"));
    const { redact } = createRedactor([value]);
    this.#values.push({ ...secret, value, isIn: (text) => redact(text) !== text, isInName: findsInAnyCase(value) });
    await this.#begin();
    await element.fill(value, limits);
    if (await element.$(PASSWORD) !== null && await element.inputValue(limits) === value) return;
    await element.fill("", limits).catch(() => {});
    throw new ToolError(
      "secret_refused",
      `Cannot fill the secret "${secret.name}": the page changed the field while it was filled, which was emptied again`,
    );
  }

  /** Returns what a picture of a page must hide. */
  masks(page: Page): Locator[] {
    if (this.#values.length === 0) return [];
    const texts = this.#values.map(({ value }) => value.slice(0, MAX_PICTURED_LENGTH));
    return page.frames().flatMap((frame) => [
      frame.locator(FIELDS),
      ...texts.map((text) => frame.getByText(text)),
    ]);
  }

  /** Guards every request of the browser, before the first value is in a page. */
  async #begin(): Promise<void> {
    if (this.#isGuarded) return;
    await this.#guards.guard((paused) => this.#mayGo(paused));
    this.#guards.narrow((url) => this.#mayReach(url));
    this.#isGuarded = true;
  }

  #mayGo(paused: PausedRequest): boolean {
    const refused = this.#refusedHost(paused);
    if (refused !== undefined) this.#note(`A request with a secret was refused: it would go to ${refused}`);
    else this.#noteOrigin(paused.request.url);
    return refused === undefined;
  }

  /** Tells whether a connection may be made. Without TLS the address is whole, otherwise it is that of a tunnel. */
  #mayReach(url: URL): boolean {
    const sent = `${url.href}\n${decoded(url.href)}`;
    if (this.#values.some(({ isIn, isInName, goesTo }) => !goesTo(url) && (isIn(sent) || isInName(url.host)))) {
      return false;
    }
    return this.#origins.has(url.origin) || this.#values.some(({ goesTo }) => goesTo(url));
  }

  #noteOrigin(address: string): void {
    if (this.#origins.size >= MAX_REQUESTS) this.#origins.clear();
    const url = URL.parse(address);
    if (url !== null) this.#origins.add(url.origin);
  }

  /** Returns the host that a request may not go to; undefined where it may. */
  #refusedHost({ requestId, redirectedRequestId, request }: PausedRequest): string | undefined {
    const url = URL.parse(request.url);
    if (url === null) return undefined;
    const before = this.#hosts.get(redirectedRequestId ?? "");
    if (this.#hosts.size >= MAX_REQUESTS) this.#hosts.clear();
    this.#hosts.set(requestId, url.host);
    const { postData = "", hasPostData = false, headers } = request;
    const sent = [request.url, decoded(request.url), postData, ...Object.values(headers)].join("\n");
    const names = [url.host, ...Object.keys(headers)].join("\n");
    // A body that is too large to be shown may hold anything
    const isUnseen = hasPostData && postData === "";
    const crosses = redirectedRequestId !== undefined && before !== url.host;
    const isRefused = this.#values.some(({ isIn, isInName, goesTo }) => {
      const isSent = isIn(sent) || isInName(names);
      return (isUnseen || isSent) && (!goesTo(url) || (crosses && isSent));
    });
    return isRefused ? JSON.stringify(url.host.slice(0, 100)) : undefined;
  }
}

async function requirePassword(element: ElementHandle, name: string): Promise<void> {
  if (await element.$(PASSWORD) === null) throw notPassword(name);
}

function notPassword(name: string): ToolError {
  return new ToolError("secret_refused", `Cannot fill the secret "${name}": the element is no password field`);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
