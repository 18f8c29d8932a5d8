import type { Access } from "./decision.ts";

/** Levels of `[autonomy] level`, from the narrowest on. */
export const LEVELS = ["read_only", "supervised", "full"] as const;
export type Level = (typeof LEVELS)[number];

/** What each level says to each access, before lists and forbidden paths (docs/design/policy.md "Autonomy"). */
export const LEVEL_TABLE: Readonly<Record<Level, Readonly<Record<Access, "allow" | "ask" | "deny">>>> = {
  read_only: { read: "allow", state: "deny", write: "deny", network: "deny" },
  supervised: { read: "allow", state: "allow", write: "ask", network: "ask" },
  full: { read: "allow", state: "allow", write: "allow", network: "allow" },
};

/** Reads a level without case, `-` and `_`: `ReadOnly` is `read_only`. undefined for any other text. */
export function parseLevel(text: string): Level | undefined {
  const plain = text.toLowerCase().replace(/[-_]/g, "");
  return LEVELS.find((level) => level.replace("_", "") === plain);
}
