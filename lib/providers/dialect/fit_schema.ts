import { isRecord, isShallow, type JsonSchema } from "../../base/json.ts";
import { listSome } from "../../base/text.ts";
import { fitKeyword, Said, textEnum, typesOf, VALUE_TYPES } from "./fit_keywords.ts";
import { allowsAny, flattenUnions, joinBranches } from "./flatten_unions.ts";
import { listOf, type OpenedNode, type RefPath, resolvePointer, type SchemaNode, SchemaOpener } from "./open_schema.ts";
import type { SchemaDialect } from "./schema_dialect.ts";
import { isNull, splitTypes, withNull } from "./split_types.ts";

/** Schema as a vendor takes it. */
export interface FittedSchema {
  /** Undefined when the tool is to be declared without parameters */
  readonly schema: JsonSchema | undefined;
  /** Rules of the arguments that the schema cannot say, for the tool's description. Empty: none */
  readonly notes: string;
}

/** Nodes that may yet be opened or written for the schemas of a request. */
export interface SchemaWork {
  left: number;
}

/** Sizes that a fitted schema keeps to. */
interface Bounds {
  /** Nodes that are opened, and those that are written */
  readonly nodes: number;
  readonly depth: number;
  /** UTF-16 units of one description */
  readonly description: number;
  /** Fields of one node */
  readonly fields: number;
}

const WIDEST_NODES = 2_000;
/** Work from which on a schema is fitted as it is where it stands alone. */
export const FULL_WORK = 2 * WIDEST_NODES;

/** Bounds that are tried in their order, until the schema is short enough. */
const BOUNDS: readonly Bounds[] = [
  { nodes: WIDEST_NODES, depth: 12, description: 8_000, fields: 256 },
  { nodes: 300, depth: 4, description: 200, fields: 64 },
  { nodes: 40, depth: 1, description: 0, fields: 32 },
];
/** UTF-16 units of the JSON of one schema. */
const MAX_SCHEMA = 48_000;
/** Nesting of the JSON that is read at all. */
const MAX_NESTING = 64;

/**
 * Returns the parameters of a tool as a vendor takes them: always an object at the top, without a union there.
 *
 * The result allows every sensible input that the original allows, and more: the original still checks each call. What the dialect
 * cannot say is told in descriptions. A field that only some forms of a union know has the types of those forms in all of them.
 * @param work takes the nodes off that were opened and written, and bounds them. Default: any work of one schema
 */
export function fitSchema(
  schema: JsonSchema,
  dialect: SchemaDialect,
  work: SchemaWork = { left: Infinity },
): FittedSchema {
  const affordable = BOUNDS.filter(({ nodes }) => 2 * nodes <= work.left);
  if (affordable.length > 0 && isShallow(schema, MAX_NESTING)) {
    for (const bounds of affordable) {
      const fitter = new SchemaFitter(schema, dialect, bounds);
      const fitted = fitter.fitTop();
      work.left -= fitter.used;
      if (JSON.stringify(fitted.schema ?? {}).length <= MAX_SCHEMA) return fitted;
    }
  }
  const notes = "The arguments are an object whose form is too large to be told";
  return { schema: dialect.omitsEmpty ? undefined : { type: "object", properties: {} }, notes };
}

/** Place of a node in the schema. */
interface Place {
  readonly depth: number;
  readonly path: RefPath | undefined;
}

type Written = Record<string, unknown>;

class SchemaFitter {
  readonly #root: SchemaNode;
  readonly #dialect: SchemaDialect;
  readonly #bounds: Bounds;
  readonly #opener: SchemaOpener;
  #left: number;
  /** Definitions that a written `$ref` names: the reference, and what it became. Filled as they are met */
  readonly #definitions = new Map<string, JsonSchema>();

  constructor(root: SchemaNode, dialect: SchemaDialect, bounds: Bounds) {
    this.#root = root;
    this.#dialect = dialect;
    this.#bounds = bounds;
    this.#opener = new SchemaOpener(root, bounds.nodes);
    this.#left = bounds.nodes;
  }

  /** Nodes that were opened and written. */
  get used(): number {
    return this.#opener.used + this.#bounds.nodes - this.#left;
  }

  fitTop(): FittedSchema {
    const { $defs: _, definitions: _old, ...root } = this.#root;
    const opened = this.#opener.open(root, undefined);
    const { node, forms } = flattenUnions(opened, this.#opener, { objectsOnly: true });
    const said = new Said();
    if (opened.cut !== undefined) said.add(opened.cut);
    if (forms !== "") said.add(forms);
    const { enum: _values, const: _value, nullable: _null, ...object }: SchemaNode = { type: "object", ...node };
    const place = { depth: 0, path: opened.path };
    const { written } = this.#writeKeywords({ ...object, type: "object" }, { said, place, isTop: true });
    written["properties"] ??= {};
    const description = cutTo(node["description"], this.#bounds.description);
    if (description === undefined) delete written["description"];
    else written["description"] = description;
    const isEmpty = Object.keys(Object(written["properties"])).length === 0;
    for (const [ref, definition] of this.#definitions) putDefinition(written, ref, definition);
    return { schema: isEmpty && this.#dialect.omitsEmpty ? undefined : written, notes: said.text() };
  }

  #fit(raw: unknown, { depth, path }: Place): JsonSchema {
    if (depth > this.#bounds.depth || this.#left-- <= 0) return this.#anyValue("nested deeper than is told here");
    const ref = this.#dialect.refs !== "none" && isRecord(raw) ? this.#definition(raw) : undefined;
    if (ref !== undefined) return ref;
    return this.#write(this.#opener.open(raw, path), depth);
  }

  /** Returns a reference to a definition at the top, where a node is one; the definition is fitted once. */
  #definition(raw: SchemaNode): JsonSchema | undefined {
    const { $ref: ref, description, ...rest } = raw;
    if (typeof ref !== "string" || !/^#\/(\$defs|definitions)\/[^/]+$/.test(ref)) return undefined;
    const target = resolvePointer(this.#root, ref);
    if (target === undefined || Object.keys(rest).length > 0) return undefined;
    if (!this.#definitions.has(ref)) {
      this.#definitions.set(ref, {});
      this.#definitions.set(ref, this.#fit(target, { depth: 1, path: undefined }));
    }
    const text = cutTo(description, this.#bounds.description);
    return text === undefined || this.#dialect.refs === "alone" ? { $ref: ref } : { $ref: ref, description: text };
  }

  #write(opened: OpenedNode, depth: number): JsonSchema {
    const said = new Said();
    if (opened.cut !== undefined) said.add(opened.cut);
    const place = { depth, path: opened.path };
    const { node, written: union } = this.#unionOf(opened, { place, said });
    if (union !== undefined) return this.#describe(union, node["description"] ?? union["description"], said);
    const { written, nullable } = this.#writeKeywords(node, { said, place, isTop: false });
    if (this.#dialect.takesTypeLists) return this.#describe(written, node["description"], said);
    const split = written["type"] === undefined ? this.#plainAny() : splitTypes(written, nullable);
    return this.#describe(split, node["description"], said);
  }

  /** Fits the union of a node: `written` where it stays a union or became something simpler, else a node without one. */
  #unionOf(
    opened: OpenedNode,
    { place, said }: { readonly place: Place; readonly said: Said },
  ): { readonly node: SchemaNode; readonly written: Written | undefined } {
    const { node, unions } = opened;
    const [first] = unions;
    if (first === undefined) return { node, written: undefined };
    if (unions.length > 1 || Object.keys(node).some((keyword) => STRUCTURE.has(keyword))) {
      const { node: flat, forms } = flattenUnions(opened, this.#opener, { objectsOnly: false });
      if (forms !== "") said.add(forms);
      return { node: flat, written: undefined };
    }
    const { description, type, nullable, ...notes } = node;
    const inner = { ...place, depth: place.depth + 1 };
    const fit = (branch: unknown) => this.#fit(withType(branch, type), inner);
    const isNullable = nullable === true || first.some(isNull);
    const branches = this.#dialect.takesTypeLists
      ? [...first, ...(nullable === true ? [{ type: "null" }] : [])].map(fit)
      : withNull(first.filter((branch) => !isNull(branch)).map(fit), isNullable);
    const written: Written = { ...(joinBranches(branches) ?? this.#plainAny()) };
    for (const keyword of Object.keys(notes)) fitKeyword(keyword, notes, { dialect: this.#dialect, written, said });
    const { description: inside, ...rest } = written;
    if (description === undefined) return { node, written };
    return { node, written: { ...rest, ...(inside === undefined ? {} : { description: "" }) } };
  }

  /** Writes the keywords of a node without unions in their order. */
  #writeKeywords(
    node: SchemaNode,
    { said, place, isTop }: { readonly said: Said; readonly place: Place; readonly isTop: boolean },
  ): { readonly written: Written; readonly nullable: boolean } {
    const dialect = this.#dialect;
    const { types, nullable } = typesOf(node, dialect);
    const written: Written = {};
    if (types !== undefined && node["type"] === undefined) written["type"] = types;
    const fields = this.#fieldsOf(node, { said, place, isTop });
    for (const keyword of Object.keys(node)) {
      switch (keyword) {
        case "type":
          if (types !== undefined) written["type"] = types;
          break;
        case "properties":
          written["properties"] = fields.properties;
          break;
        case "required":
          if (Array.isArray(node["required"])) written["required"] = fields.required;
          break;
        case "additionalProperties":
          if (dialect.takesOpenness && !fields.isOpen) written[keyword] = this.#openness(node[keyword], place);
          break;
        case "items":
        case "prefixItems":
          if (written["items"] === undefined) written["items"] = this.#itemsOf(node, place);
          break;
        case "enum":
        case "const":
          textEnum(node, dialect, { written, said });
          break;
        case "description":
          written["description"] = "";
          break;
        default:
          fitKeyword(keyword, node, { dialect, written, said });
      }
    }
    this.#addMissing(written, fields);
    return { written, nullable };
  }

  #addMissing(written: Written, fields: Fields): void {
    if (fields.required.length > 0 && written["properties"] === undefined) written["properties"] = fields.properties;
    const isArray = written["type"] === "array" || listOf(written["type"]).includes("array");
    if (isArray && written["items"] === undefined && (this.#dialect.takesAnyValue || this.#dialect.hasTextEnums)) {
      written["items"] = this.#plainAny();
    }
    if (written["type"] === undefined && !this.#dialect.takesAnyValue && this.#dialect.takesTypeLists) {
      Object.assign(written, this.#plainAny());
    }
  }

  #fieldsOf(
    node: SchemaNode,
    { said, place, isTop }: { readonly said: Said; readonly place: Place; readonly isTop: boolean },
  ): Fields {
    const given = isRecord(node["properties"]) ? node["properties"] : {};
    const wanted = new Set(listOf(node["required"]).filter((name) => typeof name === "string"));
    const isClosed = node["additionalProperties"] === false && !isRecord(node["patternProperties"]);
    const { fieldName } = this.#dialect;
    const form = fieldName === undefined || (fieldName.isTopOnly && !isTop) ? undefined : fieldName.form;
    const properties = new Map<string, JsonSchema>();
    const left: string[] = [];
    const names = [
      ...Object.keys(given),
      ...(isClosed ? [] : [...wanted].filter((name) => !Object.hasOwn(given, name))),
    ];
    for (const name of names) {
      const field = Object.hasOwn(given, name) ? given[name] : {};
      if (field === false) continue;
      const isTold = (form === undefined || form.test(name)) && properties.size < this.#bounds.fields;
      if (isTold) properties.set(name, this.#fit(field, { ...place, depth: place.depth + 1 }));
      else left.push(`${JSON.stringify(name)}${wanted.has(name) ? " (required)" : ""}`);
    }
    if (left.length > 0) {
      said.add(`more fields: ${listSome(left, 20)}`);
    }
    return {
      properties: Object.fromEntries(properties),
      required: [...wanted].filter((name) => properties.has(name)),
      isOpen: left.length > 0 || (node["additionalProperties"] === false && !isClosed),
    };
  }

  #openness(value: unknown, place: Place): unknown {
    if (typeof value === "boolean") return value;
    const fitted = isRecord(value) ? this.#fit(value, { ...place, depth: place.depth + 1 }) : {};
    return allowsAny(fitted) ? true : fitted;
  }

  /** Returns the schema of the items; a list with a form for each place allows any of them in all places. */
  #itemsOf({ items, prefixItems, additionalItems }: SchemaNode, place: Place): JsonSchema {
    const inner = { ...place, depth: place.depth + 1 };
    const tuple = Array.isArray(prefixItems) ? prefixItems : items;
    if (!Array.isArray(tuple)) return this.#fit(items, inner);
    const rest = Array.isArray(prefixItems) ? items : additionalItems;
    return this.#fit({ anyOf: [...tuple, ...(rest === false ? [] : [rest ?? true])] }, inner);
  }

  /** Adds the description of a node, and what its keywords cannot say. */
  #describe(written: Written, description: unknown, said: Said): JsonSchema {
    const text = cutTo(description, this.#bounds.description);
    const all = [...(text === undefined ? [] : [text]), ...(said.isEmpty ? [] : [`(${said.text()})`])].join(" ");
    const { description: place, ...rest } = written;
    if (all === "") return rest;
    return place === undefined ? { ...rest, description: all } : { ...written, description: all };
  }

  #anyValue(reason: string): JsonSchema {
    return { ...this.#plainAny(), ...(this.#bounds.description > 0 ? { description: `(${reason})` } : {}) };
  }

  /** Returns a schema that allows any value. */
  #plainAny(): Written {
    if (this.#dialect.takesAnyValue) return {};
    if (this.#dialect.takesTypeLists) return { type: [...VALUE_TYPES, "null"] };
    const text = { type: "string", nullable: true };
    return {
      anyOf: [text, { type: "number" }, { type: "boolean" }, { type: "object" }, { type: "array", items: text }],
    };
  }
}

interface Fields {
  readonly properties: Readonly<Record<string, JsonSchema>>;
  /** Names of the told fields that are required */
  readonly required: readonly string[];
  /** True when fields that are not told are allowed */
  readonly isOpen: boolean;
}

/** Keywords that say more of a value than its type: a union beside one is merged into the node. */
const STRUCTURE = new Set([
  ...["properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"],
  ...["items", "prefixItems", "minItems", "maxItems", "uniqueItems", "enum", "const", "pattern", "format"],
  ...["minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
]);

function withType(branch: unknown, type: unknown): unknown {
  return type === undefined || !isRecord(branch) || branch["type"] !== undefined ? branch : { type, ...branch };
}

function putDefinition(written: Written, ref: string, definition: JsonSchema): void {
  const [, container = "", name = ""] = ref.split("/");
  const known = written[container];
  const key = decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~");
  written[container] = Object.fromEntries([...Object.entries(isRecord(known) ? known : {}), [key, definition]]);
}

function cutTo(text: unknown, limit: number): string | undefined {
  if (typeof text !== "string" || text === "" || limit === 0) return undefined;
  return text.length <= limit ? text : `${text.slice(0, limit)}...`;
}
