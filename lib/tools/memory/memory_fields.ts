import * as v from "valibot";

/** The key of a memory, as the memory tools take it. */
export const keyField = v.pipe(v.string(), v.minLength(1), v.maxLength(256), v.description("Key of the memory"));

/** Where it is kept. */
export const namespaceField = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(64),
  v.description("Namespace of the key: letters, digits, _ . and -. Default: default"),
);
