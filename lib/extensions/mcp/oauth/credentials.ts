import { ConfigError } from "../../../base/errors.ts";
import { lazily } from "../../../base/lazily.ts";
import {
  type KeptMcpCredential,
  MCP_CREDENTIALS,
  parseKeptMcpCredential,
  parseMcpCredential,
} from "../../../base/records/mcp_credential.ts";
import { readable } from "../../../storage/read_records.ts";
import { OtherKeyError, type RecordCipher, SealError } from "../../../storage/record_cipher.ts";
import type { Store, Write } from "../../../storage/store.ts";

/** Sign-in to a server: its tokens, the client that they belong to, and where both may go. */
export interface McpCredential extends KeptMcpCredential {
  /** Name of the server in the configuration */
  readonly server: string;
  readonly url: string;
  readonly issuer: string;
  /** Version of its record. Undefined before it is kept */
  readonly version: number | undefined;
}

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
  const bodyOf = async ({ server, url, issuer, version: _, ...kept }: McpCredential) => {
    const sealed = (await cipher()).seal(JSON.stringify(kept), boundTo({ server, url, issuer }));
    return { v: 1 as const, url, issuer, sealed: { ...sealed } };
  };
  return {
    async get(server, url) {
      const stored = await store.get(MCP_CREDENTIALS, server);
      if (stored === undefined) return undefined;
      const [found] = readable(store, MCP_CREDENTIALS, [stored], parseMcpCredential);
      if (found === undefined) return "its record is damaged";
      const { issuer, sealed } = found.value;
      if (found.value.url !== url) return undefined;
      try {
        const kept = parseKeptMcpCredential((await cipher()).open(sealed, boundTo({ server, url, issuer })));
        return { ...kept, server, url, issuer, version: stored.version };
      } catch (error) {
        if (error instanceof OtherKeyError) return "it was kept with another key, as before a restore";
        if (error instanceof SealError || error instanceof ConfigError) return error.message;
        return "its content is not that of a sign-in";
      }
    },
    async put(credential, also) {
      const write: Write = {
        ...{ op: "put", collection: MCP_CREDENTIALS, key: credential.server },
        body: await bodyOf(credential),
      };
      if (also === undefined) await store.batch([write]);
      else await also([write]);
    },
    async renew(credential) {
      const { server: key, version } = credential;
      if (version === undefined) return false;
      const body = await bodyOf(credential);
      return await store.putIfVersion(MCP_CREDENTIALS, key, version, body);
    },
    async remove(server, also) {
      if (await store.get(MCP_CREDENTIALS, server) === undefined) return false;
      const write: Write = { op: "delete", collection: MCP_CREDENTIALS, key: server };
      if (also === undefined) await store.batch([write]);
      else await also([write]);
      return true;
    },
  };
}

/** Binds the text to its server and issuer: tokens never open under the name of another of them. */
function boundTo({ server, url, issuer }: Pick<McpCredential, "server" | "url" | "issuer">): string {
  return JSON.stringify([MCP_CREDENTIALS, server, url, issuer]);
}
