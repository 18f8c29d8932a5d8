import type { AuditEvent } from "./audit_event.ts";

const MAX_CHARACTERS = 512;
const MAX_ITEMS = 32;

/** A copy of an event without known secrets, of bounded size: long texts and lists are cut with a mark. */
export function plainEvent<E extends AuditEvent>(event: E, redact: (text: string) => string): E {
  // The copy has the shape of what came in: texts stay texts, lists stay lists
  return plain(event, redact) as E;
}

function plain(value: unknown, redact: (text: string) => string): unknown {
  if (typeof value === "string") return cut(redact(value));
  if (Array.isArray(value)) {
    const kept = value.slice(0, MAX_ITEMS).map((item) => plain(item, redact));
    return value.length > MAX_ITEMS ? [...kept, `... ${value.length - MAX_ITEMS} more`] : kept;
  }
  if (value === null || typeof value !== "object") return value;
  const copy: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) if (item !== undefined) copy[key] = plain(item, redact);
  return copy;
}

function cut(text: string): string {
  return text.length > MAX_CHARACTERS ? `${text.slice(0, MAX_CHARACTERS)}...` : text;
}
