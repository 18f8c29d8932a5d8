import { isRecord, type JsonSchema } from "../../base/json.ts";
import { VALUE_TYPES, valuesOf } from "./fit_keywords.ts";
import { listOf, type OpenedNode, type SchemaNode, type SchemaOpener } from "./open_schema.ts";

const MAX_FORMS = 10;
/** Unions within unions. */
const MAX_LEVELS = 6;

/** Node without unions, and the forms that its unions have. */
export interface FlatNode {
  readonly node: SchemaNode;
  /** Fields of each form in words, such as `one of these forms: {a, b} or {c}`. Empty: the forms have the same */
  readonly forms: string;
}

/**
 * Merges the unions of a node into it: fields of all branches, required those that each branch requires. Nodes that are no objects lose
 * their unions.
 * @param options.objectsOnly leaves out branches that allow no object
 */
export function flattenUnions(
  opened: OpenedNode,
  opener: SchemaOpener,
  options: { readonly objectsOnly: boolean },
  level = 0,
): FlatNode {
  let node = opened.node;
  const forms: string[] = [];
  for (const union of level < MAX_LEVELS ? opened.unions : []) {
    const branches = union.filter((branch) => branch !== false).map((branch) => {
      const inner = opener.open(branch, opened.path);
      return flattenUnions(inner, opener, options, level + 1).node;
    }).filter((branch) => !options.objectsOnly || mayBeObject(branch));
    if (branches.length === 0) continue;
    node = mergeBranches(node, branches);
    const text = formsOf(branches);
    if (text !== "") forms.push(text);
  }
  return { node, forms: forms.join(", and ") };
}

function mayBeObject({ type }: SchemaNode): boolean {
  return type === undefined || type === "object" || listOf(type).includes("object");
}

function mergeBranches(node: SchemaNode, branches: readonly SchemaNode[]): SchemaNode {
  const fields = branches.map(({ properties }) => (isRecord(properties) ? properties : {}));
  const own = isRecord(node["properties"]) ? node["properties"] : {};
  const merged = new Map(Object.entries(own));
  for (const name of new Set(fields.flatMap((properties) => Object.keys(properties)))) {
    const having = fields.filter((properties) => Object.hasOwn(properties, name));
    const forms = distinct(having.map((properties) => properties[name]).filter((form) => form !== false));
    const [form] = forms;
    if (form === undefined) continue;
    const union = forms.length === 1 ? form : { anyOf: forms };
    if (!merged.has(name)) merged.set(name, union);
    else if (having.length === branches.length) merged.set(name, { allOf: [merged.get(name), union] });
  }
  const [first, ...others] = branches.map(({ required }) => new Set(listOf(required)));
  const common = [...first ?? []].filter((name) => others.every((names) => names.has(name)));
  const required = [...new Set([...listOf(node["required"]), ...common])];
  const areClosed = branches.every(({ additionalProperties }) => additionalProperties === false);
  return {
    ...node,
    ...(merged.size === 0 ? {} : { properties: Object.fromEntries(merged) }),
    ...(required.length === 0 ? {} : { required }),
    ...(areClosed ? { additionalProperties: false } : {}),
  };
}

function distinct(values: readonly unknown[]): readonly unknown[] {
  return [...new Map(values.map((value) => [JSON.stringify(value), value])).values()];
}

function formsOf(branches: readonly SchemaNode[]): string {
  const texts = branches.map(({ required, properties, description, title }) => {
    const needed = listOf(required).filter((name) => typeof name === "string");
    const names = needed.length > 0 ? needed : Object.keys(isRecord(properties) ? properties : {});
    const label = [title, description].find((text) => typeof text === "string" && text.length < 80);
    return `{${names.join(", ")}}${label === undefined ? "" : ` ${String(label)}`}`;
  });
  const forms = [...new Set(texts)];
  if (forms.length < 2) return "";
  const more = forms.length > MAX_FORMS ? ` or ${forms.length - MAX_FORMS} more` : "";
  return `one of these forms: ${forms.slice(0, MAX_FORMS).join(" or ")}${more}`;
}

/**
 * Joins the fitted branches of a union in the simplest form: one branch, one list of values, or `anyOf`.
 * @returns undefined when the union allows any value
 */
export function joinBranches(branches: readonly JsonSchema[]): JsonSchema | undefined {
  const flat = distinctSchemas(branches.flatMap((branch) => {
    const keys = Object.keys(branch);
    return keys.length === 1 && keys[0] === "anyOf" ? listOf(branch["anyOf"]).filter(isRecord) : [branch];
  }));
  const [only] = flat;
  if (only === undefined || flat.some((branch) => allowsAny(branch))) return undefined;
  if (flat.length === 1) return only;
  const values = flat.map((branch) => (hasOnlyValues(branch) ? valuesOf(branch) : undefined));
  const types = new Set(flat.map(({ type }) => JSON.stringify(type)));
  if (types.size === 1 && values.every((list) => list !== undefined)) {
    return { ...(only["type"] === undefined ? {} : { type: only["type"] }), enum: [...new Set(values.flat())] };
  }
  return { anyOf: flat };
}

function distinctSchemas(schemas: readonly JsonSchema[]): readonly JsonSchema[] {
  return [...new Map(schemas.map((schema) => [JSON.stringify(schema), schema])).values()];
}

/** Tells whether a fitted schema allows any value. */
export function allowsAny(schema: JsonSchema): boolean {
  const { description: _, ...rest } = schema;
  return Object.keys(rest).length === 0 || listOf(rest["type"]).length > VALUE_TYPES.length;
}

function hasOnlyValues(schema: JsonSchema): boolean {
  return Object.keys(schema).every((keyword) => ["type", "enum", "const"].includes(keyword));
}
