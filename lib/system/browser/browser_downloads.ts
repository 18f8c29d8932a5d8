import { Buffer } from "node:buffer";
import type { Browser, CDPSession, Page } from "playwright-core";
import { ToolError } from "../../base/errors.ts";
import type { ContentSource } from "../files/files.ts";
import { type StepOptions, takeStep } from "./browser_step.ts";

/** Place of downloads, as the browser sees it. */
export interface DownloadPlace {
  /** Absolute path of the folder, in the browser's view */
  readonly folder: string;
  /** Removes a file of the folder. @param name without a path */
  readonly remove: (name: string) => Promise<void>;
}

/** File that a page gave, which lies with the browser. */
export interface DownloadedFile {
  /** Name that the page wants for it; for showing alone */
  readonly name: string;
  readonly url: string;
  readonly size: number;
  /** Gives the bytes out of the browser. @throws {ToolError} `download_failed` */
  readonly content: ContentSource;
  /** Takes the file from the browser. Repeating it does nothing */
  discard(): Promise<void>;
}

/** Step that begins a download, and its bound. */
export interface DownloadOptions extends StepOptions {
  /** The step as the middle of a sentence, such as `download from "e3"` */
  readonly what: string;
  readonly maxBytes: number;
}

/** Characters of a page's own words about a download */
const MAX_WORDS = 300;
/** Bytes that are taken out of the browser at a time */
const CHUNK_BYTES = 1_048_576;

/**
 * Downloads of one browser. Each is refused, unless a call waits for one. Chromium then writes it under a name of its own into a folder that
 * only the browser sees, and it is read through the browser: no link and no name of a page leads to a file of the machine.
 */
export class BrowserDownloads {
  readonly #browser: Browser;
  readonly #session: CDPSession;
  readonly #contextId: string;
  readonly #place: DownloadPlace;
  #onRefused: (name: string) => void = () => {};
  #awaited: AwaitedDownload | undefined;

  /** @param contextId the DevTools id of the context that the run's pages are in */
  constructor(
    { browser, session, contextId }: {
      readonly browser: Browser;
      readonly session: CDPSession;
      readonly contextId: string;
    },
    place: DownloadPlace,
  ) {
    this.#browser = browser;
    this.#session = session;
    this.#contextId = contextId;
    this.#place = place;
    session.on("Browser.downloadWillBegin", ({ guid, url, suggestedFilename }) => {
      if (this.#awaited?.take({ guid, url, name: suggestedFilename }) === true) return;
      this.#onRefused(suggestedFilename);
      this.#cancel(guid);
    });
    session.on("Browser.downloadProgress", ({ guid, state, receivedBytes, totalBytes }) => {
      if (this.#awaited?.guid === guid) this.#awaited.progress({ state, receivedBytes, totalBytes });
    });
  }

  /** Sets who is told of each download that was refused, with the name that the page wants for it. */
  set onRefused(tell: (name: string) => void) {
    this.#onRefused = tell;
  }

  /** Refuses downloads from now on. */
  refuse(): Promise<void> {
    return this.#behave("deny");
  }

  /**
   * Takes the first download that begins after a step, and waits until it is whole.
   * @param start makes the page begin it
   * @throws {ToolError} `download_too_large`, `download_failed`, and those of a step; `browser_timeout` where none begins
   */
  async take(start: () => Promise<void>, options: DownloadOptions): Promise<DownloadedFile> {
    const awaited = new AwaitedDownload(options);
    this.#awaited = awaited;
    try {
      await this.#behave("allowAndName");
      const size = await takeStep(
        options.what,
        options,
        () => Promise.race([awaited.whole, start().then(() => awaited.whole)]),
      );
      return this.#fileOf(awaited, size);
    } catch (error) {
      if (awaited.guid !== "") this.#cancel(awaited.guid);
      if (awaited.guid !== "") await this.#place.remove(awaited.guid);
      throw awaited.explained(error);
    } finally {
      this.#awaited = undefined;
      await this.refuse().catch(() => {});
    }
  }

  #fileOf({ guid, name, url }: AwaitedDownload, size: number): DownloadedFile {
    return {
      ...{ name: name.slice(0, MAX_WORDS).toWellFormed(), url: url.slice(0, MAX_WORDS).toWellFormed(), size },
      content: (write) => this.#read(guid, { size, write }),
      discard: () => this.#place.remove(guid),
    };
  }

  /** Reads a download through a page of its own, which no other page knows: the browser opens the file as one that a person chose. */
  async #read(guid: string, { size, write }: { readonly size: number; readonly write: Parameters<ContentSource>[0] }) {
    const context = await this.#browser.newContext({ acceptDownloads: false });
    try {
      const page = await context.newPage();
      await page.setContent("<input type=file>");
      const session = await context.newCDPSession(page);
      const handle = await openBlob(session, `${this.#place.folder}/${guid}`);
      let offset = 0;
      while (offset < size) {
        const part = await session.send("IO.read", { handle, offset, size: Math.min(CHUNK_BYTES, size - offset) });
        const bytes = Buffer.from(part.data, part.base64Encoded === true ? "base64" : "utf8");
        if (bytes.length === 0) throw failed("its bytes could not be read");
        await write(bytes);
        offset += bytes.length;
      }
    } catch (error) {
      throw error instanceof Error && error.name === "Error" ? failed("the browser has ended") : error;
    } finally {
      await context.close().catch(() => {});
    }
  }

  async #behave(behavior: "deny" | "allowAndName"): Promise<void> {
    await this.#session.send("Browser.setDownloadBehavior", {
      behavior,
      browserContextId: this.#contextId,
      downloadPath: this.#place.folder,
      eventsEnabled: true,
    });
  }

  #cancel(guid: string): void {
    this.#session.send("Browser.cancelDownload", { guid, browserContextId: this.#contextId }).catch(() => {});
  }
}

/** Returns the handle of a file, by which its bytes are read. */
async function openBlob(session: CDPSession, path: string): Promise<string> {
  const { result: { objectId } } = await session.send("Runtime.evaluate", {
    expression: 'document.querySelector("input")',
  });
  if (objectId === undefined) throw failed("its bytes could not be read");
  await session.send("DOM.setFileInputFiles", { files: [path], objectId });
  const { result: file } = await session.send("Runtime.callFunctionOn", {
    objectId,
    functionDeclaration: "function () { return this.files[0] }",
  });
  if (file.objectId === undefined) throw failed("its bytes could not be read");
  const { uuid } = await session.send("IO.resolveBlob", { objectId: file.objectId });
  return `blob:${uuid}`;
}

interface Begun {
  readonly guid: string;
  readonly url: string;
  readonly name: string;
}

/** Download that a call waits for. */
class AwaitedDownload {
  readonly #what: string;
  readonly #maxBytes: number;
  readonly #whole = Promise.withResolvers<number>();
  #begun: Begun | undefined;
  #bytes = 0;

  constructor({ what, maxBytes }: DownloadOptions) {
    this.#what = what;
    this.#maxBytes = maxBytes;
    this.#whole.promise.catch(() => {});
  }

  /** Resolves with the size once the file is whole. */
  get whole(): Promise<number> {
    return this.#whole.promise;
  }

  /** Id that Chromium gave it, which is the name of the file too. Empty until it has begun */
  get guid(): string {
    return this.#begun?.guid ?? "";
  }

  get name(): string {
    return this.#begun?.name ?? "";
  }

  get url(): string {
    return this.#begun?.url ?? "";
  }

  /** Takes a download that has begun, as the one that is waited for. @returns false where there is one already, or its id is no name of a file */
  take(begun: Begun): boolean {
    if (this.#begun !== undefined || !/^[\w-]{1,64}$/.test(begun.guid)) return false;
    this.#begun = begun;
    return true;
  }

  progress(
    { state, receivedBytes, totalBytes }: {
      readonly state: "inProgress" | "completed" | "canceled";
      readonly receivedBytes: number;
      readonly totalBytes: number;
    },
  ): void {
    this.#bytes = receivedBytes;
    if (Math.max(receivedBytes, totalBytes) > this.#maxBytes) {
      const limit = `[browser] max_download_bytes allows ${this.#maxBytes}`;
      this.#whole.reject(
        new ToolError("download_too_large", `Cannot ${this.#what}: the file is longer than ${limit}`),
      );
    } else if (state === "completed") this.#whole.resolve(receivedBytes);
    else if (state === "canceled") this.#whole.reject(failed("the download broke off", this.#what));
  }

  /** Returns the error of the step, which says how far a download came that took too long. */
  explained(error: unknown): unknown {
    if (!(error instanceof ToolError) || error.code !== "browser_timeout") return error;
    const state = this.#begun === undefined ? "no download began" : `${this.#bytes} bytes had come`;
    return new ToolError(error.code, `${error.message}, and ${state}`, { cause: error });
  }
}

function failed(reason: string, what = "save the download"): ToolError {
  return new ToolError("download_failed", `Cannot ${what}: ${reason}`);
}

/**
 * Opens an address in a page, and makes its good answer a download.
 * @throws {ToolError} `browser_no_download` for an answer that is none
 */
export async function openAttachment(
  page: Page,
  url: string,
  limits: { readonly timeout: number; readonly signal: AbortSignal },
): Promise<void> {
  const session = await page.context().newCDPSession(page);
  try {
    await makeAttachments(session);
    const shown = await page.goto(url, { ...limits, waitUntil: "commit" }).catch(isDownload);
    if (shown === undefined) return;
    const reason = shown === null ? "it is a page" : `its status is ${shown.status()}`;
    throw new ToolError("browser_no_download", `Cannot download the address: ${reason}`);
  } finally {
    // A page that waits for its server answers nothing: nobody waits for it
    session.send("Page.stopLoading").catch(() => {});
    session.detach().catch(() => {});
  }
}

/** Makes each good answer to a navigation of a page a download, also one that the page would show. */
async function makeAttachments(session: CDPSession): Promise<void> {
  session.on("Fetch.requestPaused", ({ requestId, responseStatusCode: status = 0, responseHeaders: headers = [] }) => {
    const isGood = status >= 200 && status < 300;
    const others = headers.filter(({ name }) => name.toLowerCase() !== "content-disposition");
    const named = headers.find(({ name, value }) =>
      name.toLowerCase() === "content-disposition" && /^attachment/i.test(value)
    );
    const disposition = named ?? { name: "content-disposition", value: "attachment" };
    session.send("Fetch.continueResponse", {
      requestId,
      ...(isGood ? { responseCode: status, responseHeaders: [...others, disposition] } : {}),
    }).catch(() => {});
  });
  await session.send("Fetch.enable", { patterns: [{ resourceType: "Document", requestStage: "Response" }] });
}

/** Takes the error of a page that was not opened because it is a download. @throws any other error */
function isDownload(error: unknown): undefined {
  if (error instanceof Error && /Download is starting|net::ERR_ABORTED/.test(error.message)) return undefined;
  throw error;
}
