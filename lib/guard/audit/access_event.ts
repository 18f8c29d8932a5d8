import type { AccessActor, AccessChange, TokenRecord } from "../../access/identity.ts";
import type { AuditActor, AuditEvent } from "./audit_event.ts";

/** Returns what the audit is told of a change of who may call. */
export function accessEvent(change: AccessChange): AuditEvent {
  switch (change.kind) {
    case "issued":
      return { type: "token", action: "issued", ...tokenFields(change.record), by: actorOf(change.by) };
    case "revoked": {
      const { tokenIds } = change;
      return { type: "token", action: "revoked", token_ids: tokenIds, count: tokenIds.length, by: actorOf(change.by) };
    }
    case "paired":
      return { type: "pairing", action: "paired", ...tokenFields(change.record), address: change.address };
    case "code_made":
      return { type: "pairing", action: "code_made", address: null, by: actorOf(change.by) };
    case "locked":
      return { type: "pairing", action: "locked", address: change.address, by: null };
  }
}

function tokenFields({ id, label, scopes, expires_at, idle_ttl_seconds }: TokenRecord) {
  return { token_id: id, label, scopes, expires_at, idle_ttl_seconds };
}

function actorOf(by: AccessActor): AuditActor | null {
  return by === null ? null : { via: by.via, token_id: by.tokenId };
}
