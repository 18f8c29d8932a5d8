/** Things of a bounded room that are there now: all of them, and those of the token that wants one more. */
export interface Taken {
  readonly all: number;
  readonly own: number;
}

/** Returns how many things one token may have in a room of this size. The last eighth is for tokens that have fewer. */
export function shareOf(limit: number): number {
  return limit - Math.floor(limit / 8);
}

/** Tells whether a token may have one more thing in a room that all tokens share. */
export function hasRoom({ all, own }: Taken, limit: number): boolean {
  return all < limit && own < shareOf(limit);
}
