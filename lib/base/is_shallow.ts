/** Whether JSON nests no deeper than `depth` levels of objects and arrays. */
export function isShallow(value: unknown, depth: number): boolean {
  if (value === null || typeof value !== "object") return true;
  return depth > 0 && Object.values(value).every((item) => isShallow(item, depth - 1));
}
