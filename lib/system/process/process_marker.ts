/** Collection of one record: the marker that a data directory's processes are known by. */
export const PROCESSES = "processes";

/** Returns the marker of a stored body. @throws {TypeError} for a body that no version wrote */
export function parseMarker(body: unknown): string {
  const marker = typeof body === "object" && body !== null && "marker" in body ? body.marker : undefined;
  if (typeof marker !== "string") throw new TypeError("The body is no marker of processes");
  return marker;
}
