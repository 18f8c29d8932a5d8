import { HttpError } from "../base/errors.ts";
import { isLoopbackName } from "../system/net/is_loopback_name.ts";
import { type ListeningSocket, listeningSockets } from "../system/net/listening_sockets.ts";
import type { Commit, ProviderMemory, TrustedServer } from "./provider_memory.ts";

export interface TrustServerOptions {
  readonly memory: Pick<ProviderMemory, "trust">;
  /** Makes the transaction that stores the trust. Default: the store's batch */
  readonly commit?: ((server: TrustedServer) => Commit) | undefined;
  /** Default: the kernel's tables */
  readonly sockets?: ((origin: string) => Promise<readonly ListeningSocket[] | undefined>) | undefined;
}

/**
 * Trusts the model server at an address of this machine, as `127.0.0.1:11434`, as long as the user who runs it now does.
 * @throws {HttpError} 400 `invalid_request` for an address that is none or not of this machine; 409 `conflict` when nothing listens
 * there, or servers of several users do
 */
export async function trustServer(address: string, options: TrustServerOptions): Promise<TrustedServer> {
  const origin = originOf(address);
  const found = await (options.sockets ?? listeningSockets)(origin);
  const uids = [...new Set(found?.map(({ uid }) => uid))];
  if (found !== undefined && uids.length !== 1) {
    const reason = uids.length === 0
      ? "nothing listens there; start the server first"
      : "servers of several users listen there";
    throw new HttpError("conflict", `Cannot trust ${JSON.stringify(address)}: ${reason}`, {
      status: 409,
      type: "invalid_request_error",
      param: "address",
    });
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
  return new HttpError("invalid_request", message, { status: 400, type: "invalid_request_error", param: "address" });
}
