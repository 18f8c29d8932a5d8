import type { DialectName } from "../vendors/vendor_forms.ts";

/**
 * The JSON Schema that one vendor takes as the parameters of a tool. Every dialect has an object without a union at the top, and the
 * bounds of `fitSchema`.
 */
export interface SchemaDialect {
  /** Keywords that the vendor takes, beside those of the form (`type`, `properties`, `items`, `anyOf` and their kin) */
  readonly keywords: ReadonlySet<string>;
  /** Place of `$ref` to a definition at the top: beside a description, alone, or nowhere, so that definitions are written out where they are used */
  readonly refs: "described" | "alone" | "none";
  /** True when a node of any value needs no type */
  readonly takesAnyValue: boolean;
  /** True when `type` may be a list. False: null becomes `nullable`, several types become `anyOf` */
  readonly takesTypeLists: boolean;
  /** True when `additionalProperties` is taken */
  readonly takesOpenness: boolean;
  /** True when `enum` holds texts alone */
  readonly hasTextEnums: boolean;
  /** Form of the names of fields; a field of another name is told of in the description */
  readonly fieldName?: { readonly form: RegExp; readonly isTopOnly: boolean } | undefined;
  /** Formats that are taken, where `format` is. Default: all */
  readonly formats?: ReadonlySet<string> | undefined;
  /** Largest count in `maxLength` and its kin: some servers write a repetition out. Default: any */
  readonly maxCount?: number | undefined;
  /** Form of the names of tools */
  readonly toolName: RegExp;
  /** UTF-16 units of a tool's description. Default: any */
  readonly maxToolDescription?: number | undefined;
  /** True when a tool without fields is declared without parameters */
  readonly omitsEmpty?: boolean | undefined;
}

const NOTES = ["title", "default", "examples", "deprecated", "readOnly", "writeOnly"];
const NUMBERS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const COUNTS = ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];
const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/;

/**
 * OpenAI's own API. It refuses any other top than an object without a union, arrays without `items`, references that point elsewhere than
 * to definitions at the top, and descriptions of tools above 1,024 characters.
 * Source: the errors `invalid_function_parameters` and `string_above_max_length` of the API
 */
const OPENAI: SchemaDialect = {
  keywords: new Set([...NOTES, ...NUMBERS, ...COUNTS, "pattern", "format", "uniqueItems", "const"]),
  refs: "described",
  takesAnyValue: true,
  takesTypeLists: true,
  takesOpenness: true,
  hasTextEnums: false,
  toolName: TOOL_NAME,
  maxToolDescription: 1024,
};

/**
 * A tool that the client declared as strict. Its objects must be closed and name all their fields as required: that is the client's affair.
 * Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
 */
const OPENAI_STRICT: SchemaDialect = {
  ...OPENAI,
  refs: "alone",
  keywords: new Set([...NUMBERS, "title", "pattern", "format", "minItems", "maxItems", "const"]),
  formats: new Set(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"]),
};

/**
 * The Messages API: JSON Schema of draft 2020-12, no union at the top, and names of the fields at the top of a form of its own.
 * Source: the errors "input_schema does not support oneOf, allOf, or anyOf at the top level" and "Property keys should match pattern"
 */
const ANTHROPIC: SchemaDialect = {
  ...OPENAI,
  maxToolDescription: undefined,
  fieldName: { form: /^[a-zA-Z0-9_.-]{1,64}$/, isTopOnly: true },
};

/**
 * Gemini behind its OpenAI-compatible endpoint: a subset of OpenAPI 3.0.
 * Source: https://ai.google.dev/api/caching#Schema, https://ai.google.dev/api/caching#FunctionDeclaration
 */
const GEMINI: SchemaDialect = {
  keywords: new Set(["minimum", "maximum", "minItems", "maxItems", "format"]),
  refs: "none",
  takesAnyValue: false,
  takesTypeLists: false,
  takesOpenness: false,
  hasTextEnums: true,
  fieldName: { form: /^[a-zA-Z_][a-zA-Z0-9_.-]{0,63}$/, isTopOnly: false },
  formats: new Set(["date-time", "float", "double", "int32", "int64"]),
  maxCount: 256,
  toolName: /^[a-zA-Z_][a-zA-Z0-9_-]{0,62}$/,
  omitsEmpty: true,
};

/**
 * Any other server of the format. llama.cpp and those built on it make a grammar of the schema: they refuse patterns that are not anchored,
 * unknown escapes, large repetitions, and nodes without a type; they read nothing beside `anyOf`. Ollama reads nodes into fixed fields.
 * Source: llama.cpp `common/json-schema-to-grammar.cpp`; Ollama `api/types.go`
 */
const PORTABLE: SchemaDialect = {
  keywords: new Set([...NOTES, ...NUMBERS, ...COUNTS, "uniqueItems"]),
  refs: "none",
  takesAnyValue: false,
  takesTypeLists: true,
  takesOpenness: true,
  hasTextEnums: false,
  maxCount: 256,
  toolName: TOOL_NAME,
};

/** Claude behind a server of the OpenAI format. */
const PORTABLE_CLAUDE: SchemaDialect = { ...PORTABLE, fieldName: ANTHROPIC.fieldName };

/** Dialects by their names in the table of vendors. */
export const DIALECTS: Readonly<Record<DialectName, SchemaDialect>> = {
  openai: OPENAI,
  anthropic: ANTHROPIC,
  gemini: GEMINI,
  portable: PORTABLE,
  portable_claude: PORTABLE_CLAUDE,
};

/** Returns the dialect of a tool that the client declared as strict. Others than OpenAI's own API have none of their own. */
export function strictDialect(dialect: SchemaDialect): SchemaDialect {
  return dialect === OPENAI ? OPENAI_STRICT : dialect;
}
