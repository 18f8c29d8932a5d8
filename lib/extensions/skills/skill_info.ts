import { exactLine } from "../../base/text.ts";
import type { DocumentTrust } from "../../guard/trusted_documents.ts";
import { hash } from "node:crypto";
import type { SkillDetail, SkillInfo, SkillProblem } from "../../base/records/extension_views.ts";
import type { KnownSkill } from "./skill_catalogue.ts";
import { SKILL_NAME, textOfFile, type WholeSkill } from "./read_skill.ts";
import type { SkillFault } from "./skill_document.ts";
import { toToolPatterns } from "./tool_patterns.ts";

/** Describes a skill. */
export function toSkillInfo({ found, state, record, hides }: KnownSkill): SkillInfo {
  const { name, layer, folder, digest, document, files, faults } = found;
  return {
    name,
    object: "skill",
    description: document?.description ?? null,
    state,
    on: state === "on",
    reason: reasonOff({ found, state, record }),
    source: layer,
    folder,
    digest,
    installed: record === undefined ? null : { ...record.source, at: record.installed_at },
    offered: document?.isOffered ?? false,
    license: document?.license ?? null,
    compatibility: document?.compatibility ?? null,
    metadata: document?.metadata ?? {},
    allowed_tools: document?.allowedTools ?? [],
    disallowed_tools: document?.disallowedTools ?? [],
    files,
    warnings: faults.map(toProblem),
    hides,
  };
}

/** Returns the deviation as it is shown. */
export function toProblem({ line, key, reason }: SkillFault): SkillProblem {
  return { file: SKILL_NAME, line, key: key ?? null, reason };
}

/** Adds what a person looks at before trusting a skill. */
export function toSkillDetail(known: KnownSkill, text: string, trust: DocumentTrust): SkillDetail {
  return {
    ...toSkillInfo(known),
    text,
    trusted_digest: trust.trusted?.digest ?? null,
    difference: trust.difference,
  };
}

/** Returns why a skill is off; null while it is on. */
export function reasonOff({ found, state, record }: Pick<KnownSkill, "found" | "state" | "record">): string | null {
  const { name, faults } = found;
  switch (state) {
    case "on":
      return null;
    case "untrusted":
      return `it came with the workspace, and nobody trusts it; look at it with postern skill enable ${name}`;
    case "changed": {
      const what = record === undefined ? "trusted" : "installed";
      return `its files are other than those that were ${what}; look at them with postern skill enable ${name}`;
    }
    case "unusable": {
      const fault = faults.find(({ isFatal }) => isFatal);
      const place = fault === undefined ? SKILL_NAME : `${SKILL_NAME}:${fault.line}`;
      const key = fault?.key === undefined ? "" : `"${fault.key}": `;
      return `it breaks the format, ${place}: ${key}${fault?.reason ?? "it cannot be read"}`;
    }
  }
}

/** Bytes of UTF-8 of the texts of all files together. Room is left for the lines that name files, up to MAX_TRUSTED_TEXT */
const MAX_TEXT = 150_000;

/**
 * Returns all files as one text for a person, SKILL.md first: the text that trust is given for. A file whose text is not shown stands there
 * with its digest, so that every change of the skill changes this text.
 */
export function textOfSkill({ contents, links, skill }: Pick<WholeSkill, "contents" | "links" | "skill">): string {
  const paths = [...contents.keys()].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const { disallowedTools = [] } = skill.document ?? {};
  const narrowed = toToolPatterns(disallowedTools);
  const head = narrowed.length === 0 ? [] : [`A run that reads this skill may no longer call: ${narrowed.join(", ")}`];
  let left = MAX_TEXT;
  const parts = paths.map((path) => {
    const bytes = contents.get(path) ?? new Uint8Array();
    const text = textOfFile(bytes);
    if (text !== undefined && bytes.length <= left) {
      left -= bytes.length;
      return `=== ${exactLine(path)}\n${text}`;
    }
    const why = text === undefined ? "no text" : "too long to be shown";
    const sha256 = hash("sha256", bytes);
    return `=== ${exactLine(path)} (${why}, ${bytes.length} bytes, SHA-256 ${sha256})`;
  });
  const linked = [...links].map(([path, target]) =>
    `=== ${exactLine(path)} (a link to ${exactLine(target)}, which is not followed)`
  );
  return [...head, ...parts, ...linked].join("\n");
}

function rank(path: string): number {
  return path === SKILL_NAME ? 0 : path.endsWith(".md") ? 1 : 2;
}
