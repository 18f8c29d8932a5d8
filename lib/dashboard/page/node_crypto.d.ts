/** The part of `node:crypto` that stands behind the types of records. The page itself calls nothing of Node. */
export function hash(algorithm: string, data: string): string;
