import type { JsonSchema } from "../../../lib/base/json.ts";
import { compileSchema } from "../../../lib/tools/runtime/json_schema.ts";

type Node = Readonly<Record<string, unknown>>;

/** Rules of a vendor, written down apart from the code under test. */
export interface VendorRules {
  /** Targets of the provider's settings that speak it */
  readonly target: { readonly kind: string; readonly origin: string; readonly model: string };
  /** Keywords that a node may have */
  readonly keywords: readonly string[];
  readonly refs: boolean;
  readonly typeLists: boolean;
  readonly textEnums: boolean;
  /** True when every node needs a type, a union or a reference */
  readonly typed: boolean;
  /** True when nothing but a description stands beside `anyOf` */
  readonly bareUnions: boolean;
  readonly fieldName?: RegExp;
  readonly topFieldName?: RegExp;
  readonly maxCount?: number;
  readonly toolName: RegExp;
}

const FORM = ["type", "properties", "required", "items", "anyOf", "enum", "description"];
const MORE = ["additionalProperties", "title", "default", "examples", "deprecated", "readOnly", "writeOnly"];
const CHECKS = [
  ...["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems"],
  ...["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"],
];
const NAME = /^[a-zA-Z0-9_-]{1,64}$/;
const openai: VendorRules = {
  target: { kind: "openai", origin: "https://api.openai.com", model: "gpt-5-mini" },
  keywords: [...FORM, ...MORE, ...CHECKS, "pattern", "format", "const", "$ref", "$defs", "definitions"],
  refs: true,
  typeLists: true,
  textEnums: false,
  typed: false,
  bareUnions: false,
  toolName: NAME,
};
const portable: VendorRules = {
  target: { kind: "openai_compatible", origin: "http://127.0.0.1:8080", model: "qwen3" },
  keywords: [...FORM, ...MORE, ...CHECKS],
  refs: false,
  typeLists: true,
  textEnums: false,
  typed: true,
  bareUnions: false,
  maxCount: 256,
  toolName: NAME,
};

/** Rules by vendor. */
export const VENDORS_RULES: Readonly<Record<string, VendorRules>> = {
  openai,
  anthropic: {
    ...openai,
    target: { kind: "anthropic", origin: "https://api.anthropic.com", model: "claude-sonnet-4-5" },
    topFieldName: /^[a-zA-Z0-9_.-]{1,64}$/,
  },
  gemini: {
    target: {
      kind: "openai_compatible",
      origin: "https://generativelanguage.googleapis.com",
      model: "gemini-3-flash",
    },
    keywords: [...FORM, "nullable", "minimum", "maximum", "minItems", "maxItems", "format"],
    refs: false,
    typeLists: false,
    textEnums: true,
    typed: true,
    bareUnions: true,
    fieldName: /^[a-zA-Z_][a-zA-Z0-9_.-]{0,63}$/,
    maxCount: 256,
    toolName: /^[a-zA-Z_][a-zA-Z0-9_-]{0,62}$/,
  },
  portable,
  claude_elsewhere: {
    ...portable,
    target: { kind: "openrouter", origin: "https://openrouter.ai", model: "anthropic/claude-sonnet-4.5" },
    topFieldName: /^[a-zA-Z0-9_.-]{1,64}$/,
  },
};

const TYPES = ["string", "number", "integer", "boolean", "object", "array", "null"];

/** Returns what a vendor would refuse in the parameters of a tool. */
export function refusals(schema: JsonSchema, rules: VendorRules): readonly string[] {
  const found: string[] = [];
  for (const union of ["anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref"]) {
    if (union in schema) found.push(`${union} at the top`);
  }
  if (schema["type"] !== "object") found.push("no object at the top");
  if (schema["properties"] === undefined) found.push("no properties at the top");
  check(schema, { rules, root: schema, at: "", found });
  return found;
}

interface Checking {
  readonly rules: VendorRules;
  readonly root: JsonSchema;
  readonly at: string;
  readonly found: string[];
}

function check(raw: unknown, checking: Checking): void {
  const { rules, root, at, found } = checking;
  const refuse = (reason: string) => found.push(`${at || "top"}: ${reason}`);
  if (raw === null || typeof raw !== "object" || Array.isArray(raw)) return void refuse("no schema");
  const node = raw as Node;
  for (const keyword of Object.keys(node)) if (!rules.keywords.includes(keyword)) refuse(`keyword ${keyword}`);
  checkType(node, rules, refuse);
  checkValues(node, rules, refuse);
  if (typeof node["$ref"] === "string") {
    const [, container = "", name = ""] = node["$ref"].split("/");
    const key = decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~");
    if (!Object.hasOwn((root[container] ?? {}) as Node, key)) refuse(`reference ${node["$ref"]} to nothing`);
  }
  const inner = (part: unknown, path: string) => check(part, { ...checking, at: `${at}/${path}` });
  for (const map of ["properties", "$defs", "definitions"]) {
    for (const [name, part] of Object.entries((node[map] ?? {}) as Node)) {
      const form = map === "properties" ? rules.fieldName ?? (at === "" ? rules.topFieldName : undefined) : undefined;
      if (form !== undefined && !form.test(name)) refuse(`field ${JSON.stringify(name)}`);
      inner(part, `${map}/${name}`);
    }
  }
  if ("items" in node) inner(node["items"], "items");
  const open = node["additionalProperties"];
  if (open !== undefined && typeof open !== "boolean") inner(open, "additionalProperties");
  for (const [index, branch] of ((node["anyOf"] ?? []) as readonly unknown[]).entries()) {
    inner(branch, `anyOf/${index}`);
  }
}

function checkType(node: Node, rules: VendorRules, refuse: (reason: string) => void): void {
  const types = Array.isArray(node["type"]) ? node["type"] : node["type"] === undefined ? [] : [node["type"]];
  if (Array.isArray(node["type"]) && !rules.typeLists) refuse("list of types");
  if (types.some((type) => !TYPES.includes(String(type)))) refuse(`type ${JSON.stringify(node["type"])}`);
  if (!rules.typeLists && types.includes("null")) refuse("type null");
  if (rules.typed && types.length === 0 && !("anyOf" in node)) refuse("no type");
  if (types.includes("array") && !rules.typed && !("items" in node)) refuse("array without items");
  if ("anyOf" in node && (!Array.isArray(node["anyOf"]) || node["anyOf"].length === 0)) refuse("empty anyOf");
  if (rules.bareUnions && "anyOf" in node) {
    for (const keyword of Object.keys(node)) {
      if (!["anyOf", "description"].includes(keyword)) refuse(`${keyword} beside anyOf`);
    }
  }
}

function checkValues(node: Node, rules: VendorRules, refuse: (reason: string) => void): void {
  const required = node["required"] as unknown;
  const names = Object.keys((node["properties"] ?? {}) as Node);
  if (required !== undefined && !(Array.isArray(required) && required.every((name) => names.includes(String(name))))) {
    refuse("required of unknown fields");
  }
  const values = node["enum"] as unknown;
  if (values !== undefined && !(Array.isArray(values) && values.length > 0 && values.length <= 256)) refuse("enum");
  if (rules.textEnums && Array.isArray(values) && !values.every((value) => typeof value === "string" && value !== "")) {
    refuse("enum of other than texts");
  }
  for (const keyword of ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"]) {
    const count = node[keyword];
    if (count === undefined) continue;
    if (!Number.isSafeInteger(count) || Number(count) < 0) refuse(`${keyword} ${JSON.stringify(count)}`);
    if (rules.maxCount !== undefined && Number(count) > rules.maxCount) refuse(`${keyword} ${count}`);
  }
  for (const keyword of ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]) {
    if (keyword in node && typeof node[keyword] !== "number") refuse(`${keyword} ${JSON.stringify(node[keyword])}`);
  }
  if ("description" in node && typeof node["description"] !== "string") refuse("description");
}

/** Returns the reason why a fitted schema does not allow a value. Undefined: it does. References may not be in it. */
export function misfit(schema: JsonSchema, value: unknown): string | undefined {
  const wrapped = { type: "object", properties: { value: plain(schema) }, additionalProperties: false };
  const fault = compileSchema(wrapped).check({ value });
  return fault === undefined ? undefined : `${fault.path} ${fault.reason}`;
}

/** Writes `nullable` of OpenAPI as a union, and leaves out definitions. */
function plain(raw: unknown): unknown {
  if (raw === null || typeof raw !== "object") return raw;
  if (Array.isArray(raw)) return raw.map(plain);
  const { nullable, $defs: _, definitions: _old, ...rest } = raw as Node;
  const node = Object.fromEntries(
    Object.entries(rest).map(([keyword, value]) => {
      if (["default", "examples", "enum", "const"].includes(keyword)) return [keyword, value];
      return [keyword, keyword === "properties" ? plainFields(value) : plain(value)];
    }),
  );
  return nullable === true ? { anyOf: [node, { type: "null" }] } : node;
}

function plainFields(fields: unknown): unknown {
  return Object.fromEntries(Object.entries(fields as Node).map(([name, field]) => [name, plain(field)]));
}
