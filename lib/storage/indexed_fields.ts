/** A field of a collection's bodies that a scan may ask for by value, from an index. */
export interface IndexedField {
  readonly collection: string;
  /** Names in the body, from the outermost to the field */
  readonly path: readonly string[];
  /** The only order in which the records of one value are read */
  readonly order: "created" | "key";
}

/** How a scan asks for the records of one value. */
export interface WhereField {
  /** The field's path, its names joined by dots */
  readonly field: string;
  readonly value: string;
}

/**
 * Every indexed field. The filters of the routes read these, so that a filter nothing fits costs no more than one that fits.
 *
 * A driver takes the value from the body itself when a record is written: no writer can forget it. A new field comes with a
 * migration that makes its index.
 */
export const INDEXED_FIELDS: readonly IndexedField[] = [
  { collection: "runs", path: ["run", "status"], order: "created" },
  { collection: "approvals", path: ["status"], order: "created" },
  { collection: "deliveries", path: ["status"], order: "created" },
  { collection: "audit", path: ["type"], order: "key" },
  { collection: "audit", path: ["tool"], order: "key" },
  { collection: "audit", path: ["run_id"], order: "key" },
];

/**
 * Returns the indexed field that a scan asks for.
 * @throws {TypeError} for a field without an index, for another order than that of the index, and for a prefix beside it
 */
export function findIndexedField(
  collection: string,
  { where, order = "key", prefix = "" }: {
    readonly where: WhereField;
    readonly order?: "created" | "key" | undefined;
    readonly prefix?: string | undefined;
  },
): IndexedField {
  const found = INDEXED_FIELDS.find((field) => field.collection === collection && nameOf(field) === where.field);
  if (found === undefined) {
    throw new TypeError(
      `Cannot scan "${collection}" by "${where.field}": the field has no index, see indexed_fields.ts`,
    );
  }
  if (found.order !== order) {
    throw new TypeError(
      `Cannot scan "${collection}" by "${where.field}" in order "${order}": its order is "${found.order}"`,
    );
  }
  if (prefix !== "") {
    throw new TypeError(`Cannot scan "${collection}" by "${where.field}" and a prefix of the key at once`);
  }
  return found;
}

/** Returns the field's path as WhereField names it, for example `run.status`. */
export function nameOf({ path }: IndexedField): string {
  return path.join(".");
}

/** Returns the field's text in a body; undefined where it is absent or no text. */
export function fieldOf(body: unknown, { path }: IndexedField): string | undefined {
  let value = body;
  for (const name of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Readonly<Record<string, unknown>>)[name]; // an object that has this property
  }
  return typeof value === "string" ? value : undefined;
}
