import * as v from "valibot";

/** The `limit` of a search: how many `unit` it may return. */
export function limitField(unit: string, { max, fallback }: { readonly max: number; readonly fallback: number }) {
  return v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(1),
      v.maxValue(max),
      v.description(`Most ${unit} to return, up to ${max}. Default ${fallback}`),
    ),
  );
}
