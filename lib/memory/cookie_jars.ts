import { ConfigError, ToolError } from "../base/errors.ts";
import { lazily } from "../base/lazily.ts";
import { type KeptCookie, parseCookies } from "../base/records/cookie_jar.ts";
import { OtherKeyError, type RecordCipher, SealError, writeSealed } from "../storage/record_cipher.ts";
import type { SealedCollection } from "../storage/rekey_records.ts";
import type { Store } from "../storage/store.ts";
import { COOKIE_JARS } from "./browser_records.ts";

/** Bytes of the cookies of one conversation, as JSON. */
export const MAX_JAR_BYTES = 262_144;

/** Cookies that the browser of a conversation keeps, encrypted at rest. */
export interface CookieJars {
  /**
   * Returns the cookies of a conversation; none where nothing was kept.
   * @throws {ToolError} `cookies_altered`, `cookies_key`
   */
  get(conversationId: string): Promise<readonly KeptCookie[]>;
  /**
   * Keeps these cookies in the place of those before.
   * @returns false, and changes nothing, when they have more than MAX_JAR_BYTES
   * @throws {ToolError} `cookies_key`
   */
  set(conversationId: string, cookies: readonly KeptCookie[]): Promise<boolean>;
}

/** Creates the cookies over a store. @param options.cipher opened once, at the first use */
export function createCookieJars(
  { store, cipher }: { readonly store: Store; readonly cipher: () => Promise<RecordCipher> },
): CookieJars {
  const kept = lazily(cipher);
  const opened = async () => {
    try {
      return await kept();
    } catch (cause) {
      if (cause instanceof ConfigError) throw new ToolError("cookies_key", cause.message, { cause });
      throw cause;
    }
  };
  return {
    async get(conversationId) {
      const found = await COOKIE_JARS.read(store, conversationId);
      if (found === undefined) return [];
      const { open } = await opened();
      try {
        return parseCookies(open(found.value.sealed, boundTo(conversationId)));
      } catch (cause) {
        if (!(cause instanceof SealError)) throw cause;
        const wayOut = cause instanceof OtherKeyError
          ? "put the right browser_cookies.key into the data directory, or delete the conversation"
          : "delete the conversation";
        const message = `Cannot read the cookies of the conversation "${conversationId}": ${cause.message}; ${wayOut}`;
        throw new ToolError("cookies_altered", message, { cause });
      }
    },
    async set(conversationId, cookies) {
      if (cookies.length === 0) {
        await store.batch([COOKIE_JARS.remove(conversationId)]);
        return true;
      }
      const text = JSON.stringify(cookies);
      if (Buffer.byteLength(text) > MAX_JAR_BYTES) return false;
      const cipher = await opened();
      await writeSealed(cipher, (writer) => {
        const body = { v: 1 as const, sealed: { ...writer.seal(text, boundTo(conversationId)) } };
        return store.batch([COOKIE_JARS.put(conversationId, body), ...writer.also]);
      });
      return true;
    },
  };
}

/** Cookies of conversations, for a change of their key. */
export const SEALED_COOKIES: SealedCollection = {
  collection: COOKIE_JARS.name,
  key: "browser_cookies.key",
  rewrite({ key, body }, reseal) {
    const jar = COOKIE_JARS.parse(body);
    return { ...jar, sealed: { ...jar.sealed, ...reseal(jar.sealed, boundTo(key)) } };
  },
};

/** Binds the text to its record: cookies never open in another conversation. */
function boundTo(conversationId: string): string {
  return JSON.stringify([COOKIE_JARS.name, conversationId]);
}
