import { toStandardJsonSchema } from "@valibot/to-json-schema";
import type * as v from "valibot";
import { ToolError } from "../base/errors.ts";
import { isRecord } from "../base/json.ts";
import { closeObjects } from "./runtime/foreign_input.ts";
import { type CheckedSchema, compileSchema, SchemaError } from "./runtime/json_schema.ts";

/**
 * A schema by the Standard Schema specification, as those of valibot, zod and arktype. The type stands alone, as those in
 * lib/providers/program_provider.ts.
 */
export interface ProgramSchema<Input = unknown, Output = Input> {
  /** Members of the specification, version 1. Source: https://standardschema.dev */
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => ProgramSchemaResult<Output> | Promise<ProgramSchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    readonly jsonSchema?: { readonly input: (options: { readonly target: "draft-2020-12" }) => object } | undefined;
  };
}

/** Verdict of a schema about a value: the value, or what is wrong with it. */
export type ProgramSchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | {
    readonly issues: readonly {
      readonly message: string;
      readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
    }[];
  };

/** A JSON Schema as an object. */
export type ProgramJsonSchema = Readonly<Record<string, unknown>>;

/** Type of the values that a schema takes, before it changes them. A JSON Schema tells no type. */
export type ProgramSchemaInput<Schema> = Schema extends ProgramSchema<infer Input, unknown> ? Input
  : Readonly<Record<string, unknown>>;

/** Type of the values that a schema gives. A JSON Schema tells no type. */
export type ProgramSchemaOutput<Schema> = Schema extends ProgramSchema<unknown, infer Output> ? Output
  : Readonly<Record<string, unknown>>;

/** A schema of a program, ready for use. */
export interface ReadSchema {
  readonly json: unknown;
  /** Returns the value as the schema gives it, or the reason why it does not fit. A JSON Schema changes nothing */
  readonly parse: (value: unknown) => Promise<{ readonly value: unknown } | { readonly fault: string }>;
}

/**
 * Reads a schema of a program: a Standard Schema that gives JSON Schema, one of valibot, or a JSON Schema.
 * @param place option that it was given in, for errors
 * @throws {TypeError} it gives no JSON Schema, with the way out
 */
export function readSchema(given: unknown, place: string): ReadSchema {
  const standard = standardOf(given);
  if (standard === undefined) {
    if (!isRecord(given)) throw new TypeError(`${place} must be a Standard Schema or a JSON Schema`);
    return { json: structuredClone(given), parse: (value) => Promise.resolve({ value }) };
  }
  return { json: structuredClone(toJson(given, standard, place)), parse: (value) => parseBy(standard, value) };
}

type Standard = ProgramSchema["~standard"];

function standardOf(given: unknown): Standard | undefined {
  // Schemas of arktype are functions
  if (given === null || (typeof given !== "object" && typeof given !== "function")) return undefined;
  const { "~standard": standard }: Partial<ProgramSchema> = given;
  return typeof standard?.validate === "function" ? standard : undefined;
}

function toJson(given: unknown, { jsonSchema, vendor }: Standard, place: string): object {
  const target = { target: "draft-2020-12" } as const;
  try {
    if (typeof jsonSchema?.input === "function") return jsonSchema.input(target);
    if (vendor === "valibot") {
      // Schemas of valibot, which the vendor tells, do not give one by themselves
      return toStandardJsonSchema(given as v.GenericSchema)["~standard"].jsonSchema.input(target);
    }
  } catch (cause) {
    throw new TypeError(
      `${place} cannot be written as JSON Schema: ${cause instanceof Error ? cause.message : cause}`,
      {
        cause,
      },
    );
  }
  throw new TypeError(
    `${place} gives no JSON Schema: take a release of "${vendor}" that has "~standard".jsonSchema, or give a JSON Schema`,
  );
}

async function parseBy({ validate }: Standard, value: unknown): ReturnType<ReadSchema["parse"]> {
  const result = await validate(value);
  if (result.issues === undefined) return { value: result.value };
  const [issue] = result.issues;
  const path = (issue?.path ?? []).map((part) => String(typeof part === "object" ? part.key : part)).join(".");
  return {
    fault: `${path === "" ? "the value" : JSON.stringify(path.slice(0, 200))}: ${issue?.message ?? "it does not fit"}`,
  };
}

/** Makes something of a schema of the program. @throws {TypeError} a part of it is not understood, with the `place` that it was given in */
export function naming<Made>(place: string, make: () => Made): Made {
  try {
    return make();
  } catch (cause) {
    if (cause instanceof SchemaError) throw new TypeError(`${place} cannot be used: ${cause.message}`, { cause });
    throw cause;
  }
}

/** Makes the check of a schema of the program, whose objects are closed as those of a tool. @throws {TypeError} as `naming` */
export function checkOf(json: unknown, place: string): CheckedSchema {
  return naming(place, () => compileSchema(closeObjects(json)));
}

/** Returns a check of the results of a tool by the schema of its output. @throws {TypeError} */
export function createOutputCheck(name: string, given: unknown): (value: unknown) => Promise<unknown> {
  const place = `Cannot define the tool "${name}": its output`;
  const { json, parse } = readSchema(given, place);
  const { $defs = {}, definitions = {}, ...value } = json as ProgramJsonSchema; // readSchema gives objects alone
  const whole = { type: "object", properties: { value }, $defs, definitions };
  const { check } = naming(place, () => compileSchema(whole, value));
  const wrong = (reason: string) => new ToolError("tool_failed", `Cannot use the result of "${name}": ${reason}`);
  return async (result) => {
    const parsed = await parse(result);
    if ("fault" in parsed) throw wrong(parsed.fault);
    const fault = check({ value: parsed.value });
    if (fault !== undefined) throw wrong(`${JSON.stringify(fault.path.slice(0, 200))} ${fault.reason}`);
    return parsed.value;
  };
}
