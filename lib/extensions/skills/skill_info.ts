import { exactLine } from "../../base/text.ts";
import type { SkillLayer } from "../../config/folders.ts";
import type { DocumentTrust } from "../../guard/trusted_documents.ts";
import { hash } from "node:crypto";
import type { KnownSkill, SkillState } from "./skill_catalogue.ts";
import { SKILL_NAME, type SkillFile, textOfFile, type WholeSkill } from "./read_skill.ts";
import type { SkillFault } from "./skill_document.ts";
import type { SkillSource } from "./skill_record.ts";
import { toToolPatterns } from "./tool_patterns.ts";

/** Deviation from the format, as `/v1/skills` shows it. */
export interface SkillProblem {
  readonly file: string;
  /** 1-based */
  readonly line: number;
  /** Field of the front matter; null for the document as a whole */
  readonly key: string | null;
  readonly reason: string;
}

/** A skill, as `/v1/skills` shows it. Times are in ISO 8601. */
export interface SkillInfo {
  readonly name: string;
  readonly object: "skill";
  readonly description: string | null;
  readonly state: SkillState;
  /** Tells whether it can be read by the agent */
  readonly on: boolean;
  /** Why it is off, with what turns it on; null while it is on */
  readonly reason: string | null;
  /** Place that it comes from */
  readonly source: SkillLayer;
  /** Absolute path of its folder */
  readonly folder: string;
  readonly digest: string;
  /** Source that it was installed from; null for others */
  readonly installed: (SkillSource & { readonly at: string }) | null;
  /** Tells whether the agent is told of it; false for `disable-model-invocation: true` */
  readonly offered: boolean;
  readonly license: string | null;
  readonly compatibility: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  /** Tools that its author would allow. They grant nothing */
  readonly allowed_tools: readonly string[];
  /** Tools that a run which has read it may not call any more, as its author names them */
  readonly disallowed_tools: readonly string[];
  readonly files: readonly SkillFile[];
  /** Deviations from the format that other programs let pass, and those that make it unusable */
  readonly warnings: readonly SkillProblem[];
  /** Folders of skills with the same name that it hides */
  readonly hides: readonly string[];
}

/** A skill with what a person looks at before trusting it. */
export interface SkillDetail extends SkillInfo {
  /** Text of all files, at most 256 KiB */
  readonly text: string;
  /** Digest that is trusted now; null: none is */
  readonly trusted_digest: string | null;
  /** Lines that changed since it was trusted; null where none was, and where nothing changed */
  readonly difference: string | null;
}

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
