import * as v from "valibot";

/** Building blocks of the configuration schema: each gives one key with its bounds and its default, written once. */

const MAX_TEXT_CHARACTERS = 65_536;
const MAX_LIST_ITEMS = 10_000;

/** Gives a key its meaning, which `postern config schema` and docs/configuration.md show. */
export function about<const S extends v.GenericSchema>(meaning: string, schema: S): S {
  // A description changes neither what is read nor its type
  return v.pipe(schema, v.description(meaning)) as unknown as S;
}

/** A whole number from `min` to `max`, in the unit the key's name says. */
export const integer = (fallback: number, min: number, max: number) =>
  v.optional(v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(max)), fallback);

/** A switch: true or false. */
export const boolean = (fallback: boolean) => v.optional(v.boolean(), fallback);

/** Free text of at most 65,536 characters. */
export const text = (fallback: string) => v.optional(v.pipe(v.string(), v.maxLength(MAX_TEXT_CHARACTERS)), fallback);

/** Text that must be given and not be empty. */
export const required = () => v.pipe(v.string(), v.nonEmpty(), v.maxLength(MAX_TEXT_CHARACTERS));

/** A choice from a few words. */
export const choice = <const T extends readonly [string, ...string[]]>(options: T, fallback: T[number]) =>
  v.optional(v.picklist(options), fallback);

/** A list of non-empty texts, at most 10,000. */
export const texts = (fallback: readonly string[]) =>
  v.optional(v.pipe(v.array(v.pipe(v.string(), v.nonEmpty())), v.maxLength(MAX_LIST_ITEMS)), [...fallback]);

/** Settings of one program of others: no more than this many. */
const MAX_SETTINGS = 100;

/** A place for a secret: its name, and what stands before its value, such as `{ secret = "forge", prefix = "Bearer " }`. */
const secretPlace = v.strictObject({
  secret: about("Name of the `[secrets.<name>]` whose value stands here", required()),
  prefix: about("Text before the value, such as `Bearer ` with a space at its end", text("")),
});

/** A secret's name in the place of its value. */
export type SecretPlace = v.InferOutput<typeof secretPlace>;

/** A table of text values by free name, each of which may be the name of a secret instead. */
export const fillableTable = () =>
  v.optional(
    v.pipe(
      v.record(
        v.string(),
        v.pipe(
          v.union([v.pipe(v.string(), v.maxLength(MAX_TEXT_CHARACTERS)), secretPlace]),
          v.description('text, or { secret = "name" } for the value of [secrets.name]'),
        ),
      ),
      v.maxEntries(MAX_SETTINGS),
    ),
    {},
  );

/** A table of texts, numbers and switches by free name, each of which may be the name of a secret instead. */
export const settingsTable = () =>
  v.pipe(
    v.record(
      v.pipe(v.string(), v.regex(/^[A-Za-z0-9_.-]{1,64}$/)),
      v.pipe(
        v.union([v.pipe(v.string(), v.maxLength(MAX_TEXT_CHARACTERS)), v.number(), v.boolean(), secretPlace]),
        v.description('text, a number, true or false, or { secret = "name" } for the value of [secrets.name]'),
      ),
    ),
    v.maxEntries(MAX_SETTINGS),
  );

/** A table of names of models by other names for them; `*` at the end of a name stands for any rest. */
export const modelAliases = () =>
  v.optional(
    v.pipe(
      v.record(
        v.pipe(v.string(), v.regex(/^[^\s/*]{1,128}\*?$/)),
        v.pipe(v.string(), v.nonEmpty(), v.maxLength(256), v.description("name of a model")),
      ),
      v.maxEntries(MAX_SETTINGS),
    ),
    {},
  );

/** An http or https address; empty: not set. */
export const httpUrl = () =>
  v.optional(v.pipe(v.string(), v.regex(/^(https?:\/\/[^\s/]+\S*)?$/), v.description("an http or https address")), "");

/** An http or https address, or the absolute path of a folder; empty: not set. */
export const addressOrFolder = () =>
  v.optional(
    v.pipe(
      v.string(),
      v.maxLength(4_096),
      v.regex(/^(https?:\/\/[^\s/]+\S*|\/.*|[A-Za-z]:[\\/].*)?$/),
      v.description("an http or https address, or an absolute folder"),
    ),
    "",
  );

/** Name of an environment variable, never a secret itself; empty: not set. */
export const environmentName = () =>
  v.optional(
    v.pipe(v.string(), v.regex(/^([A-Za-z_][A-Za-z0-9_]*)?$/), v.description("the name of an environment variable")),
    "",
  );

/** Tables by a name of the user's choice: lower-case letters, digits, `_` and `-`, 1-64 characters. */
export const named = <const S extends v.GenericSchema>(entry: S) =>
  v.optional(v.record(v.pipe(v.string(), v.regex(/^[a-z0-9_-]{1,64}$/)), entry), {});
