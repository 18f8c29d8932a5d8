import { httpError } from "../wire/error_codes.ts";

/** Whether a request asks to become a WebSocket. */
export function isHandshake(request: Request): boolean {
  const upgrade = request.headers.get("upgrade");
  return upgrade !== null && upgrade.toLowerCase() === "websocket";
}

export interface UpgradeGuardOptions {
  readonly handshake: boolean;
  /** The path is a WebSocket route's */
  readonly socketRoute: boolean;
  /** The server beneath can hand the connection over; a plain fetch-based mount cannot */
  readonly canUpgrade: boolean;
}

/**
 * Handshakes and socket routes belong together.
 * @throws {HttpError} 400 invalid_request for a handshake elsewhere, 426 upgrade_required for a plain GET of a socket route
 */
export function guardUpgrade(request: Request, { handshake, socketRoute, canUpgrade }: UpgradeGuardOptions): void {
  if (handshake && !socketRoute) {
    throw httpError("invalid_request", "Cannot open a WebSocket here: /ws/chat and /ws/node are the routes for it");
  }
  const reads = request.method === "GET" || request.method === "HEAD";
  if (!socketRoute || !reads || (handshake && canUpgrade)) return;
  throw httpError(
    "upgrade_required",
    "Cannot answer a plain request here: this route is a WebSocket, ask for an upgrade",
    {
      headers: { upgrade: "websocket" },
    },
  );
}
