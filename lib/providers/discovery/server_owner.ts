import process from "node:process";
import { type HttpError, refuse } from "../../base/errors.ts";
import { isLoopbackName } from "../../system/net/address.ts";
import {
  type ListeningSocket,
  listeningSockets,
  readUserNames,
  type UserNames,
} from "../../system/net/listening_sockets.ts";
import type { Commit, ProviderMemory, TrustedServer } from "./provider_memory.ts";

/** Owner of a server on this machine, and whether the server may answer for a model. */
export type ServerOwner =
  | {
    readonly accepted: true;
    /** As `run by ollama` */
    readonly owner: string;
    /** Names the listening sockets: another text means another server */
    readonly identity: string;
  }
  | {
    readonly accepted: false;
    /** As `it is run by mallory (uid 1001)` */
    readonly reason: string;
    /** Tells whether there is no server at all. */
    readonly isGone?: boolean;
  };

/** Looks up who runs the server at an origin now. Never throws */
export type OwnerOf = (origin: string) => Promise<ServerOwner>;

/** The rules and the facts about users that decide about a server. */
export interface ServerOwnersOptions {
  /** `[provider] local_users` */
  readonly localUsers: () => readonly string[];
  readonly memory: Pick<ProviderMemory, "trusted">;
  /** Default: the kernel's tables */
  readonly sockets?: ((origin: string) => Promise<readonly ListeningSocket[] | undefined>) | undefined;
  /** Default: /etc/passwd */
  readonly users?: (() => Promise<UserNames>) | undefined;
  /** User id of this process; undefined where there is none. Default: its own */
  readonly ownUid?: number | undefined;
}

/** User id that Linux shows for any user of another user namespace: it may be anybody. */
const UNKNOWN_UID = 65534;

/**
 * Decides whether a server that was found may be used: every socket that could take the connection belongs to the gateway's own user,
 * to root or to one of `local_users`, or a person trusted the address while this user had it. Where the owner cannot be seen, only a
 * trusted address is accepted.
 */
export function createServerOwners(options: ServerOwnersOptions): OwnerOf {
  const { memory, sockets = listeningSockets, users = readUserNames } = options;
  const ownUid = "ownUid" in options ? options.ownUid : process.geteuid?.();
  return async (origin) => {
    if (!isLoopbackName(new URL(origin).hostname)) {
      return { accepted: false, reason: "it is not on this machine; name it as base_url of [provider]" };
    }
    const trusted = memory.trusted().find((known) => known.origin === origin);
    const found = await sockets(origin).catch(() => undefined);
    if (found === undefined) {
      if (trusted?.uid === null) return { accepted: true, owner: "trusted by you", identity: "unseen" };
      return { accepted: false, reason: "its owner cannot be seen on this system" };
    }
    if (found.length === 0) return { accepted: false, reason: "nothing listens there", isGone: true };
    const names = await users();
    const isKnown = (uid: number) =>
      uid === 0 || (uid === ownUid && uid !== UNKNOWN_UID) || uid === trusted?.uid ||
      options.localUsers().some((name) => names.get(name) === uid);
    const nameOf = (uid: number) => {
      if (uid === ownUid) return "you";
      const name = [...names].find(([, id]) => id === uid)?.[0];
      return name === undefined ? `the user with uid ${uid}` : name;
    };
    const uids = [...new Set(found.map(({ uid }) => uid))];
    const stranger = uids.find((uid) => !isKnown(uid));
    if (stranger !== undefined) {
      const name = nameOf(stranger);
      return {
        accepted: false,
        reason: `it is run by ${name.startsWith("the ") ? name : `${name} (uid ${stranger})`}`,
      };
    }
    const isTrusted = trusted !== undefined && uids.includes(trusted.uid ?? -1);
    const owner = `run by ${uids.map(nameOf).join(" and ")}${isTrusted ? ", trusted by you" : ""}`;
    return { accepted: true, owner, identity: found.map(({ uid, inode }) => `${uid}:${inode}`).sort().join(" ") };
  };
}

/**
 * Trusts the model server at an address of this machine, such as `127.0.0.1:11434`, as long as the user who runs it now does.
 * @throws {HttpError} 400 `invalid_request` for an address that is none or not of this machine; 409 `conflict` when nothing listens
 * there, or servers of several users do
 */
export async function trustServer(address: string, options: {
  readonly memory: Pick<ProviderMemory, "trust">;
  /** Makes the transaction that stores the trust. Default: the store's batch */
  readonly commit?: ((server: TrustedServer) => Commit) | undefined;
  /** Default: the kernel's tables */
  readonly sockets?: ((origin: string) => Promise<readonly ListeningSocket[] | undefined>) | undefined;
}): Promise<TrustedServer> {
  const origin = originOf(address);
  const found = await (options.sockets ?? listeningSockets)(origin);
  const uids = [...new Set(found?.map(({ uid }) => uid))];
  if (found !== undefined && uids.length !== 1) {
    const reason = uids.length === 0
      ? "nothing listens there; start the server first"
      : "servers of several users listen there";
    throw refuse("conflict", `Cannot trust ${JSON.stringify(address)}: ${reason}`, { param: "address" });
  }
  const server = { origin, uid: uids[0] ?? null };
  await options.memory.trust(server, options.commit?.(server));
  return server;
}

function originOf(address: string): string {
  const url = URL.parse(address.includes("://") ? address : `http://${address}`);
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== "") {
    throw invalid(address, "it is no address");
  }
  if (!isLoopbackName(url.hostname)) {
    throw invalid(address, "it is not on this machine; name it as base_url of [provider]");
  }
  if (url.hostname === "localhost") url.hostname = "127.0.0.1";
  return url.origin;
}

function invalid(address: string, reason: string): HttpError {
  const message = `Cannot trust ${JSON.stringify(address.slice(0, 128))}: ${reason}`;
  return refuse("invalid_request", message, { param: "address" });
}
