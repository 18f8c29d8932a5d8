import { posix } from "node:path";
import { exactLine } from "../../base/text.ts";
import { matchesPatterns } from "../../tools/runtime/registry.ts";
import { SKILL_NAME, textOfFile, type WholeSkill } from "./read_skill.ts";
import type { SkillProblem, SkillTest } from "../../base/records/extension_views.ts";
import { toProblem } from "./skill_info.ts";
import { toToolPatterns } from "./tool_patterns.ts";

/** Errors that are named */
const MAX_ERRORS = 200;
/** Bytes of a Markdown file whose links are looked at */
const MAX_LINKING_BYTES = 262_144;

/**
 * Checks a skill strictly: each deviation from the format is an error, each file that SKILL.md or another Markdown file links to must be
 * there, and `disallowed-tools` may name tools of this gateway alone.
 */
export function testSkill(
  whole: WholeSkill,
  { tools, hides }: { readonly tools: readonly string[]; readonly hides: readonly string[] },
): SkillTest {
  const { skill: { name, faults, document } } = whole;
  const places = placesOf([...whole.contents.keys()]);
  const unknown = (document?.disallowedTools ?? []).filter((given) =>
    !toToolPatterns([given]).some((pattern) => tools.some((tool) => matchesPatterns(tool, [pattern])))
  );
  const errors: readonly SkillProblem[] = [
    ...faults.map(toProblem),
    ...unknown.map((given) => ({
      file: SKILL_NAME,
      line: lineOfKey(whole, "disallowed-tools"),
      key: "disallowed-tools",
      reason: `no tool is called ${JSON.stringify(given.slice(0, 100))}`,
    })),
    ...[...whole.contents].flatMap(([path, bytes]) =>
      path.endsWith(".md") && bytes.length <= MAX_LINKING_BYTES ? faultsOfLinks(path, { bytes, places }) : []
    ),
    ...hides.map((place) => ({
      file: SKILL_NAME,
      line: 1,
      key: "name",
      reason: `a skill with this name is in ${place} too, and is hidden`,
    })),
  ];
  return { name, object: "skill_test", ok: errors.length === 0, errors: errors.slice(0, MAX_ERRORS) };
}

function lineOfKey({ contents }: WholeSkill, key: string): number {
  const lines = textOfFile(contents.get(SKILL_NAME) ?? new Uint8Array())?.split("\n") ?? [];
  return Math.max(1, lines.findIndex((line) => line.startsWith(`${key}:`)) + 1);
}

/** Targets of links and pictures of Markdown, without their titles */
const LINK = /\]\(\s*(?:<([^<>\n]{1,1024})>|([^\s()<>]{1,1024}))(?:\s+["'(][^\n]{0,200})?\)/g;

function faultsOfLinks(
  path: string,
  { bytes, places }: { readonly bytes: Uint8Array; readonly places: ReadonlySet<string> },
): readonly SkillProblem[] {
  const faults: SkillProblem[] = [];
  let isCode = false;
  for (const [at, line] of (textOfFile(bytes) ?? "").split("\n").entries()) {
    if (/^\s*(```|~~~)/.test(line)) isCode = !isCode;
    if (isCode || line.length > 10_000) continue;
    for (const [, bracketed, plain] of line.replaceAll(/`[^`]*`/g, "").matchAll(LINK)) {
      const reason = faultOfTarget(bracketed ?? plain ?? "", { from: path, places });
      if (reason !== undefined) faults.push({ file: path, line: at + 1, key: null, reason });
    }
  }
  return faults;
}

/** Returns why a link leads nowhere. Undefined for one that leads to a file of the skill, or to the web. */
function faultOfTarget(
  target: string,
  { from, places }: { readonly from: string; readonly places: ReadonlySet<string> },
): string | undefined {
  if (/^[a-z][a-z0-9+.-]*:/i.test(target) || target.startsWith("#") || target.startsWith("//")) return undefined;
  const told = `the link ${exactLine(JSON.stringify(target.slice(0, 200)))}`;
  const [file = ""] = target.split(/[#?]/, 1);
  const decoded = decode(file);
  if (decoded.startsWith("/")) return `${told} is an absolute path; name the file relative to the skill`;
  // The format names files from the skill's folder; Markdown names them from the file's own
  const meant = [posix.normalize(decoded), posix.normalize(posix.join(posix.dirname(from), decoded))];
  if (meant.every((place) => place.startsWith(".."))) return `${told} leads out of the skill`;
  const isThere = meant.some((place) => places.has(place.replace(/\/$/, "")));
  return isThere ? undefined : `${told} leads to no file of the skill`;
}

/** Returns the paths of all files and folders. */
function placesOf(paths: readonly string[]): ReadonlySet<string> {
  const places = new Set<string>(["."]);
  for (const path of paths) {
    for (let place = path; place !== "."; place = posix.dirname(place)) places.add(place);
  }
  return places;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
