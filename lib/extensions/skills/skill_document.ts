import { isRecord } from "../../base/json.ts";
import { isLonger } from "../../base/text.ts";
import { type FrontMatter, readFrontMatter, TextFormatError } from "../../config/front_matter.ts";

/** Instructions of a skill, with what its front matter says. Source: Agent Skills specification, "SKILL.md format" */
export interface SkillDocument {
  readonly name: string;
  /** Text of one line, at most 1024 characters */
  readonly description: string;
  /** License, or the file of the skill that holds it. Undefined: not said */
  readonly license: string | undefined;
  /** Needs of the skill, such as "Requires git and jq". Undefined: nothing, or not said */
  readonly compatibility: string | undefined;
  readonly metadata: Readonly<Record<string, string>>;
  /** Tools that the author would allow. They grant nothing here */
  readonly allowedTools: readonly string[];
  /** Tools that a run which has read the skill may not call any more */
  readonly disallowedTools: readonly string[];
  /** False where the author wants a person to ask for the skill: `disable-model-invocation: true` */
  readonly isOffered: boolean;
  /** Text after the front matter, for the model */
  readonly body: string;
  /** 1-based line of the document that the body begins with */
  readonly bodyLine: number;
}

/** Deviation of a skill from the format. */
export interface SkillFault {
  /** 1-based line of SKILL.md */
  readonly line: number;
  /** Field of the front matter; undefined for the document as a whole */
  readonly key: string | undefined;
  readonly reason: string;
  /** True where the skill cannot be used. Other deviations are only told of, since other programs let them pass */
  readonly isFatal: boolean;
}

/** Document as it was read, and where it deviates from the format. */
export interface SkillReading {
  /** Undefined where a fault is fatal */
  readonly document: SkillDocument | undefined;
  readonly faults: readonly SkillFault[];
}

/** Bytes of a SKILL.md */
export const MAX_SKILL_BYTES = 262_144;

/** Bytes and lines of a front matter: the time to parse one grows faster than its length */
const MAX_FRONT_BYTES = 8_192;
const MAX_FRONT_LINES = 400;
const MAX_BRACKETS = 300;
/** Faults of one skill that are told */
const MAX_FAULTS = 50;
/** Tools in one list, and characters of one name */
const MAX_TOOLS = 200;
const MAX_TOOL = 200;
/** Fields of the metadata */
const MAX_METADATA = 100;
const MAX_NAME = 64;
const MAX_DESCRIPTION = 1024;
const MAX_COMPATIBILITY = 500;
/** Lines that a body should have at most, so that the model does not have to read more than it needs */
const WANTED_LINES = 500;

/** Fields of the format. */
const FIELDS = ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];
/** Fields of other programs that are obeyed here too. */
const OBEYED = ["disallowed-tools", "disable-model-invocation"];

/**
 * Reads the text of a SKILL.md leniently: what other programs let pass is a fault that is not fatal.
 * @param folder name of the skill's folder, which its name should be
 */
export async function readSkillDocument(text: string, folder: string): Promise<SkillReading> {
  const faults: SkillFault[] = [];
  const long = faultOfLength(text);
  if (long !== undefined) return { document: undefined, faults: [long] };
  const front = await readFront(text, faults);
  if (front === undefined) return { document: undefined, faults };
  const { raw } = front;
  if (!isRecord(raw)) {
    faults.push({ line: 2, key: undefined, reason: "the front matter must be a list of fields", isFatal: true });
    return { document: undefined, faults };
  }
  const document = new FrontReader(raw, { front, faults, folder }).read();
  const isUsable = !faults.some(({ isFatal }) => isFatal);
  return { document: isUsable ? document : undefined, faults: bounded(faults) };
}

/** Returns the fatal faults before all others, and no more than MAX_FAULTS. */
function bounded(faults: readonly SkillFault[]): readonly SkillFault[] {
  if (faults.length <= MAX_FAULTS) return faults;
  const sorted = [...faults].sort((one, other) => Number(other.isFatal) - Number(one.isFatal));
  const reason = `${faults.length - MAX_FAULTS} more deviations are not named`;
  return [...sorted.slice(0, MAX_FAULTS), { line: 1, key: undefined, reason, isFatal: false }];
}

/** Refuses a front matter that is too long to be parsed. */
function faultOfLength(text: string): SkillFault | undefined {
  if (!text.startsWith("---")) return undefined;
  const end = /\n---[ \t]*(?:\r?\n|$)/.exec(text)?.index ?? text.length;
  const front = text.slice(0, end);
  const lines = front.split("\n").length;
  if (isLonger(front, MAX_FRONT_BYTES)) {
    return fatal(lines, `the front matter is longer than ${MAX_FRONT_BYTES} bytes`);
  }
  if ((front.match(/[[{]/g)?.length ?? 0) > MAX_BRACKETS) {
    return fatal(1, `the front matter has over ${MAX_BRACKETS} opening brackets`);
  }
  return lines > MAX_FRONT_LINES ? fatal(lines, `the front matter has over ${MAX_FRONT_LINES} lines`) : undefined;
}

function fatal(line: number, reason: string): SkillFault {
  return { line, key: undefined, reason, isFatal: true };
}

/** Parses the front matter; where it is not YAML, once more with the values quoted that most authors forget to quote. */
async function readFront(text: string, faults: SkillFault[]): Promise<FrontMatter | undefined> {
  try {
    return await readFrontMatter(text, "its fields");
  } catch (error) {
    if (!(error instanceof TextFormatError)) throw error;
    const fault = { line: error.line, key: undefined, reason: error.message };
    const front = await readFrontMatter(text, "its fields", quoted).catch(() => undefined);
    faults.push(
      front === undefined ? { ...fault, isFatal: true } : {
        ...fault,
        reason: `${error.message}; read as if the value were in quotation marks`,
        isFatal: false,
      },
    );
    return front;
  }
}

/** Puts each value that is no YAML by itself in quotation marks, such as `Use when: it rains` and `[file] [format]`. */
async function quoted(lines: readonly string[]): Promise<readonly string[]> {
  const fields: string[][] = [];
  for (const line of lines) {
    const field = fields.at(-1);
    if (field === undefined || /^[A-Za-z][\w-]*:(?:[ \t]|$)/.test(line)) fields.push([line]);
    else field.push(line);
  }
  return (await Promise.all(fields.map(quotedField))).flat();
}

/** Returns as many lines as it takes, since faults name lines. */
async function quotedField(lines: readonly string[]): Promise<readonly string[]> {
  const [first = "", ...rest] = lines;
  const [, key, value] = /^([A-Za-z][\w-]*):[ \t]+([^\s|>].*)$/.exec(first) ?? [];
  // An alias stands for another text than the one that is written there
  if (key === undefined || value === undefined || /^\*[\w-]+$/.test(value.trimEnd())) return lines;
  // A guess at what takes something away could take too little
  if (OBEYED.includes(key) && !(rest.length === 0 && /^\w/.test(value))) return lines;
  const isWhole = await readFrontMatter(["---", ...lines, "---"].join("\n"), "").then(() => true, () => false);
  if (isWhole) return lines;
  const words = [value, ...rest.filter((line) => !/^\s*#/.test(line))].map((line) => line.trim());
  return [`${key}: ${JSON.stringify(words.join(" ").trim())}`, ...rest.map(() => "")];
}

/** Reads the fields of one front matter, and keeps what is wrong with them. */
class FrontReader {
  readonly #raw: Readonly<Record<string, unknown>>;
  readonly #front: FrontMatter;
  readonly #faults: SkillFault[];
  readonly #folder: string;

  constructor(
    raw: Readonly<Record<string, unknown>>,
    { front, faults, folder }: { readonly front: FrontMatter; readonly faults: SkillFault[]; readonly folder: string },
  ) {
    this.#raw = raw;
    this.#front = front;
    this.#faults = faults;
    this.#folder = folder;
  }

  read(): SkillDocument {
    const { body, bodyLine } = this.#front;
    const lines = body.join("\n").trimEnd().split("\n").length;
    if (lines > WANTED_LINES) {
      const reason =
        `its instructions have ${lines} lines; move details to files of their own, ${WANTED_LINES} are the most`;
      this.#faults.push({ line: bodyLine + WANTED_LINES, key: undefined, reason, isFatal: false });
    }
    for (const key of Object.keys(this.#raw)) {
      if (!FIELDS.includes(key) && !OBEYED.includes(key)) {
        this.#warn(key, `the format has no such field; it has ${FIELDS.join(", ")}`);
      }
    }
    return {
      name: this.#name(),
      description: this.#description(),
      license: this.#text("license", Infinity),
      compatibility: this.#text("compatibility", MAX_COMPATIBILITY),
      metadata: this.#metadata(),
      allowedTools: this.#tools("allowed-tools"),
      disallowedTools: this.#tools("disallowed-tools"),
      isOffered: this.#isOffered(),
      body: body.join("\n").trim(),
      bodyLine,
    };
  }

  /**
   * A name that breaks the rules gives way to the folder's, so that each skill has a name that can be typed. Where that breaks them too,
   * the first that keeps them in small letters counts.
   */
  #name(): string {
    const given = this.#raw["name"];
    const name = typeof given === "string" ? given.normalize("NFKC") : undefined;
    const wrong = name === undefined ? "it must be a text" : faultOfName(name);
    if (name !== undefined && wrong === undefined) {
      if (name !== this.#folder.normalize("NFKC")) {
        this.#warn("name", `it must be the name of the skill's folder, ${JSON.stringify(this.#folder)}`);
      }
      return name;
    }
    const reason = given === undefined ? "it is missing" : wrong ?? "";
    const folder = this.#folder.normalize("NFKC");
    if (faultOfName(folder) === undefined) {
      this.#warn("name", `${reason}; the folder's name ${JSON.stringify(folder)} is used`);
      return folder;
    }
    const small = [name ?? "", folder].map((text) => text.toLowerCase()).find((text) =>
      faultOfName(text) === undefined
    );
    if (small === undefined) this.#refuse("name", reason);
    else this.#warn("name", `${reason}; it is called ${JSON.stringify(small)} here`);
    return small ?? this.#folder;
  }

  #description(): string {
    const given = this.#raw["description"];
    const text = typeof given === "string" ? given.replaceAll(/\s+/g, " ").trim() : "";
    if (text === "") {
      const reason = given === undefined ? "it is missing" : "it must be a text that is not empty";
      this.#refuse("description", `${reason}; it tells the model when to read the skill`);
    }
    if (text.length <= MAX_DESCRIPTION) return text;
    this.#warn("description", `it has ${text.length} characters and may have ${MAX_DESCRIPTION}; the rest is left out`);
    return text.slice(0, MAX_DESCRIPTION).toWellFormed();
  }

  #text(key: string, most: number): string | undefined {
    const given = this.#raw[key];
    if (given === undefined || given === null) return undefined;
    if (typeof given !== "string" || given.trim() === "") {
      this.#warn(key, "it must be a text that is not empty; it does not count");
      return undefined;
    }
    if (given.length > most) this.#warn(key, `it has ${given.length} characters and may have ${most}`);
    return given.trim().slice(0, MAX_DESCRIPTION).toWellFormed();
  }

  #metadata(): Readonly<Record<string, string>> {
    const given = this.#raw["metadata"];
    if (given === undefined || given === null) return {};
    if (!isRecord(given)) {
      this.#warn("metadata", "it must be a list of fields; it does not count");
      return {};
    }
    const entries = Object.entries(given);
    if (entries.length > MAX_METADATA) {
      this.#warn("metadata", `it has over ${MAX_METADATA} fields; the rest is left out`);
    }
    const texts = entries.slice(0, MAX_METADATA).map(([key, value]) => {
      const isPlain = ["string", "number", "boolean"].includes(typeof value);
      if (!isPlain) this.#warn("metadata", `the value of ${JSON.stringify(key)} must be a text`);
      const shown = isPlain ? String(value) : JSON.stringify(value);
      return [key.slice(0, MAX_TOOL), shown.slice(0, MAX_DESCRIPTION).toWellFormed()] as const;
    });
    return Object.fromEntries(texts);
  }

  #tools(key: string): readonly string[] {
    const given = this.#raw[key];
    if (given === undefined || given === null) return [];
    const names = typeof given === "string" ? given.match(/[^\s,(]+(?:\([^()]{0,200}\))?/g) ?? [] : given;
    if (Array.isArray(names) && names.length <= MAX_TOOLS && names.every(isToolName)) return names;
    // A list of what must not be called may not be passed over
    const reason =
      `it must be at most ${MAX_TOOLS} names of tools: a text with spaces between them, or a list of texts`;
    if (key === "disallowed-tools") this.#refuse(key, reason);
    else this.#warn(key, `${reason}; it does not count`);
    return [];
  }

  #isOffered(): boolean {
    const key = "disable-model-invocation";
    const given = this.#raw[key];
    if (given !== undefined && typeof given !== "boolean") this.#refuse(key, "it must be true or false");
    return given !== true;
  }

  #warn(key: string, reason: string): void {
    this.#faults.push({ line: this.#front.lineOf([key]), key, reason, isFatal: false });
  }

  #refuse(key: string, reason: string): void {
    this.#faults.push({ line: this.#front.lineOf([key]), key, reason, isFatal: true });
  }
}

/** Returns the rule that a name breaks. Undefined: it breaks none */
export function faultOfName(name: string): string | undefined {
  if (name === "" || [...name].length > MAX_NAME) return `it must have 1 to ${MAX_NAME} characters`;
  if (!/^[\p{Ll}\p{Lo}\p{Lm}\p{N}-]+$/u.test(name)) return "it may have lowercase letters, digits and hyphens alone";
  if (/^-|-$|--/.test(name)) return "it may not begin or end with a hyphen, or have two in a row";
  return undefined;
}

function isToolName(name: unknown): name is string {
  return typeof name === "string" && name.trim() !== "" && name.length <= MAX_TOOL;
}
