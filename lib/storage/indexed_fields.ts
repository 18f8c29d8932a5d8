/** A field of a collection's bodies that a scan may ask for by value, from an index. */
export interface IndexedField {
  readonly collection: string;
  /** Names in the body, from the outermost to the field */
  readonly path: readonly string[];
  /** The only order in which the records of one value are read */
  readonly order: "created" | "key";
  /** True: a body in which the field is null or absent is found by the empty text. Default: it is found by none */
  readonly findsAbsent?: true;
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
  { collection: "run_claims", path: ["gateway"], order: "created", findsAbsent: true },
  { collection: "run_claims", path: ["parent_id"], order: "created" },
  { collection: "run_claims", path: ["conversation_id"], order: "created" },
  { collection: "open_sops", path: ["gateway"], order: "created", findsAbsent: true },
  { collection: "open_deliveries", path: ["gateway"], order: "created", findsAbsent: true },
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

/** Returns how a scan asks for the records of one value, in the order of the field's index. */
export function scanOf(
  collection: string,
  where: WhereField,
): { readonly where: WhereField; readonly order?: "created" | "key" } {
  const order = INDEXED_FIELDS.find((field) => field.collection === collection && nameOf(field) === where.field)?.order;
  return { where, ...order !== undefined && { order } };
}

/** Returns the field's path as WhereField names it, for example `run.status`. */
export function nameOf({ path }: IndexedField): string {
  return path.join(".");
}

/** Returns the text by which a body's field is found; undefined where the field is absent or no text. */
export function fieldOf(body: unknown, { path, findsAbsent }: IndexedField): string | undefined {
  let value = body;
  for (const name of path) {
    const isThere = typeof value === "object" && value !== null && Object.hasOwn(value, name);
    value = isThere ? (value as Readonly<Record<string, unknown>>)[name] : null; // an object that has this property
  }
  if (value === null && findsAbsent === true) return "";
  return typeof value === "string" ? value : undefined;
}
