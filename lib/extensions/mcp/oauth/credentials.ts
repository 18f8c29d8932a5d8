import { hash } from "node:crypto";
import { ConfigError } from "../../../base/errors.ts";
import { lazily } from "../../../base/lazily.ts";
import type { OAuthTokens } from "@modelcontextprotocol/client";
import {
  OtherKeyError,
  type RecordCipher,
  type RecordWriter,
  SealError,
  writeSealed,
} from "../../../storage/record_cipher.ts";
import type { SealedCollection } from "../../../storage/rekey_records.ts";
import type { Store, Write } from "../../../storage/store.ts";
import { tokenFault } from "../../../tools/secrets/foreign_token.ts";
import { type KeptMcpCredential, MCP_CREDENTIALS, parseKeptMcpCredential } from "./mcp_credential.ts";

/** Sign-in to a server: its tokens, the client that they belong to, and where both may go. */
export interface McpCredential extends KeptMcpCredential {
  /** Name of the server in the configuration */
  readonly server: string;
  readonly url: string;
  readonly issuer: string;
  /** Version of its record and digest of its content. Undefined before it is kept */
  readonly version: { readonly number: number; readonly digest: string } | undefined;
}

/** Secrets that an authorization server has made up: tokens, and that of a client that registered itself. */
type ForeignSecrets = Pick<OAuthTokens, "access_token" | "refresh_token"> & {
  readonly client?: KeptMcpCredential["client"];
};

/**
 * Returns the secrets of a sign-in that may be masked everywhere. The secret of a client that registered itself opens nothing but that
 * registration at the server that made it up: one that no token could be is used all the same, and not masked.
 */
export function secretsOf({ access_token, refresh_token, client }: ForeignSecrets): readonly string[] {
  return [access_token, refresh_token, client?.client_secret].filter((secret): secret is string =>
    secret !== undefined && tokenFault(secret) === undefined
  );
}

/** Returns why a sign-in is not taken: one of its tokens may not be masked everywhere. Undefined where it is taken */
export function faultOfSecrets({ access_token, refresh_token }: ForeignSecrets): string | undefined {
  for (const [name, secret] of Object.entries({ access_token, refresh_token })) {
    const fault = secret === undefined ? undefined : tokenFault(secret);
    if (fault !== undefined) return `its ${name} ${fault}`;
  }
  return undefined;
}

/** Tries of a renewal while the key of its record is being changed. */
const MAX_TRIES = 5;

/** Sign-ins to MCP servers, encrypted at rest. */
export interface McpCredentials {
  /**
   * Returns the sign-in at a server. The tokens of an earlier address of the server are never returned.
   * @returns undefined where there is none, or the reason why it cannot be read
   */
  get(server: string, url: string): Promise<McpCredential | string | undefined>;
  /** Keeps a sign-in in the place of the one before. It is on the disk when this resolves. @param also done in the same transaction */
  put(credential: McpCredential, also?: (writes: readonly Write[]) => Promise<unknown>): Promise<void>;
  /** Keeps new tokens where the sign-in is still the one that they were made from. @returns false where it is another or gone */
  renew(credential: McpCredential): Promise<boolean>;
  /** Removes a sign-in, one that cannot be read too. @returns false where there is none */
  remove(server: string, also?: (writes: readonly Write[]) => Promise<unknown>): Promise<boolean>;
}

/** Creates the sign-ins over a store. @param cipher opened at the first use. @throws {ConfigError} a key that cannot be used */
export function createMcpCredentials(store: Store, open: () => Promise<RecordCipher>): McpCredentials {
  const cipher = lazily(open);
  const bodyOf = ({ server, url, issuer, version: _, ...kept }: McpCredential, { seal }: RecordWriter) => {
    const sealed = seal(JSON.stringify(kept), boundTo({ server, url, issuer }));
    return { v: 1 as const, url, issuer, sealed: { ...sealed } };
  };
  const get: McpCredentials["get"] = async (server, url) => {
    const { value: found, version: number } = await MCP_CREDENTIALS.readForChange(store, server);
    if (number === 0) return undefined;
    if (found === undefined) return "its record is damaged";
    const { issuer, sealed } = found;
    if (found.url !== url) return undefined;
    try {
      const text = (await cipher()).open(sealed, boundTo({ server, url, issuer }));
      const version = { number, digest: hash("sha256", text) };
      const kept = parseKeptMcpCredential(text);
      // An earlier version took any text, and what is taken is masked everywhere
      return faultOfSecrets(kept) ?? { ...kept, server, url, issuer, version };
    } catch (error) {
      if (error instanceof OtherKeyError) return "it was kept with another key, as before a restore";
      if (error instanceof SealError || error instanceof ConfigError) return error.message;
      return "its content is not that of a sign-in";
    }
  };
  return {
    get,
    async put(credential, also) {
      await writeSealed(await cipher(), (writer) => {
        const writes = [MCP_CREDENTIALS.put(credential.server, bodyOf(credential, writer)), ...writer.also];
        return also === undefined ? store.batch(writes) : also(writes);
      });
    },
    async renew(credential) {
      const { server: key, version: made } = credential;
      if (made === undefined) return false;
      let { number } = made;
      for (let tries = 0; tries < MAX_TRIES; tries++) {
        const writer = await (await cipher()).writer();
        const write = MCP_CREDENTIALS.putOver(key, number, bodyOf(credential, writer));
        if (await store.batch([write, ...writer.also])) return true;
        // A record that was re-encrypted is the same sign-in: new tokens must not be lost over that
        const now = await get(key, credential.url);
        if (typeof now !== "object" || now.version?.digest !== made.digest) return false;
        number = now.version.number;
      }
      return false;
    },
    async remove(server, also) {
      if (await MCP_CREDENTIALS.versionOf(store, server) === 0) return false;
      const write = MCP_CREDENTIALS.remove(server);
      if (also === undefined) await store.batch([write]);
      else await also([write]);
      return true;
    },
  };
}

/** Sign-ins, for a change of their key. */
export const SEALED_CREDENTIALS: SealedCollection = {
  collection: MCP_CREDENTIALS.name,
  key: "mcp_credentials.key",
  rewrite({ key: server, body }, reseal) {
    const kept = MCP_CREDENTIALS.parse(body);
    return { ...kept, sealed: { ...kept.sealed, ...reseal(kept.sealed, boundTo({ server, ...kept })) } };
  },
};

/** Binds the text to its server and issuer: tokens never open under the name of another of them. */
function boundTo({ server, url, issuer }: Pick<McpCredential, "server" | "url" | "issuer">): string {
  return JSON.stringify([MCP_CREDENTIALS.name, server, url, issuer]);
}
