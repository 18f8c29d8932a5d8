/** The argument that names a run. */
export const RUN_ID = {
  type: "positional",
  required: true,
  description: "Id of the run, from postern runs list",
} as const;

/** Where the gateway has a run. @param action what follows, as `/cancel` */
export function runPath(id: string, action = ""): string {
  return `/v1/runs/${encodeURIComponent(id)}${action}`;
}
