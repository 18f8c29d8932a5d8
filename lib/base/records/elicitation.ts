import * as v from "valibot";

/** Formats that a field of text may ask for. */
export const FORM_FORMATS = ["email", "uri", "date", "date-time"] as const;

const about = { title: v.optional(v.string()), description: v.optional(v.string()) };
const count = v.pipe(v.number(), v.integer(), v.minValue(0));
/** Choices of a field: the value that is sent, and the words that a person reads. */
const choices = v.array(v.object({ const: v.string(), title: v.string() }));

/** Field of a form: a part of JSON Schema that a person can fill in without nesting. */
export const formFieldSchema = v.variant("type", [
  v.object({
    type: v.literal("string"),
    ...about,
    minLength: v.optional(count),
    maxLength: v.optional(count),
    format: v.optional(v.picklist(FORM_FORMATS)),
    /** Choices, of which the text is one */
    oneOf: v.optional(choices),
    default: v.optional(v.string()),
  }),
  v.object({
    type: v.picklist(["number", "integer"]),
    ...about,
    minimum: v.optional(v.number()),
    maximum: v.optional(v.number()),
    default: v.optional(v.number()),
  }),
  v.object({ type: v.literal("boolean"), ...about, default: v.optional(v.boolean()) }),
  /** Any of some choices */
  v.object({
    type: v.literal("array"),
    ...about,
    items: v.object({ anyOf: choices }),
    minItems: v.optional(count),
    maxItems: v.optional(count),
    default: v.optional(v.array(v.string())),
  }),
]);
/** Field of a form. */
export type FormField = v.InferOutput<typeof formFieldSchema>;

/** Form that a person fills in: a flat object, as JSON Schema. */
export const formSchema = v.object({
  type: v.literal("object"),
  properties: v.record(v.string(), formFieldSchema),
  required: v.array(v.string()),
});
/** Form that a person fills in. */
export type Form = v.InferOutput<typeof formSchema>;

/** Content of an answer: the fields that the person filled in. */
export const formContentSchema = v.record(
  v.string(),
  v.union([v.string(), v.number(), v.boolean(), v.array(v.string())]),
);
/** Content of an answer. */
export type FormContent = v.InferOutput<typeof formContentSchema>;
